"""The public Python interface of `longtail`, and its command.

It composes `training` and `service`. Names are imported at their first use, so that
`import longtail` takes hardly any time.

    import longtail

    longtail.train("DATA")                          # publishes a version in the folder `registry`
    model = longtail.load()                         # the current one
    model.predict("Duties on imports of olive oil", k=3)
    model.evaluate("DATA").metrics
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if not (Path(__file__).parent / "models").is_dir():  # a checkout without symbolic links
    __path__.append(str(Path(__file__).parents[1]))

from longtail.api import evaluate, learn, load, train
from longtail.models.errors import LongtailError

if TYPE_CHECKING:  # they bring PyTorch or scikit-learn
    from longtail.model import Model
    from longtail.models.bundle.registry import Registry
    from longtail.models.corpus.columns import CorpusOptions
    from longtail.models.interface.arrow import ArrowPredictor, arrow_predictor
    from longtail.models.predict.predictor import Predictor
    from longtail.training.estimators.classifier import LongtailClassifier
    from longtail.training.estimators.scorers import (
        metrics_at_k,
        ndcg_at_k,
        precision_at_k,
        psp_at_k,
    )

__all__ = [
    "ArrowPredictor", "CorpusOptions", "LongtailClassifier", "LongtailError", "Model", "Predictor",
    "Registry", "arrow_predictor", "evaluate", "learn", "load", "metrics_at_k", "ndcg_at_k",
    "precision_at_k", "psp_at_k", "train",
]  # fmt: skip

_LAZY = {
    "ArrowPredictor": "longtail.models.interface.arrow",
    "CorpusOptions": "longtail.models.corpus.columns",
    "LongtailClassifier": "longtail.training.estimators.classifier",
    "Model": "longtail.model",
    "Predictor": "longtail.models.predict.predictor",
    "Registry": "longtail.models.bundle.registry",
    "arrow_predictor": "longtail.models.interface.arrow",
    "main": "longtail.cli",
    "metrics_at_k": "longtail.training.estimators.scorers",
    "ndcg_at_k": "longtail.training.estimators.scorers",
    "precision_at_k": "longtail.training.estimators.scorers",
    "psp_at_k": "longtail.training.estimators.scorers",
}
TRAINING = Path(__path__[-1]) / "training"
DEMO_DATA = TRAINING / "demo_data"


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    """Import an attribute at its first use: a class, or `app` and `main`, the command.

    Raises:
        AttributeError: There is nothing of this name.
    """
    if name == "app":
        return import_module("longtail.cli").command()
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'longtail' has no attribute {name!r}; it has {__all__}")
