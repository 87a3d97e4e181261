"""Checks that a model can answer: each scorer is tried on warm-up texts; scores must be finite."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar, runtime_checkable

from longtail.models.bundle.bundle import Bundle
from longtail.models.bundle.trained_on import read_probes
from longtail.models.errors import BundleCorruptError, LongtailError
from longtail.models.kinds.registry import KINDS
from longtail.models.kinds.storage import read_parts
from longtail.models.predict.predictor import Predictor

T = TypeVar("T")

DEFAULT_TEXTS = (
    "Imports of olive oil from third countries and the duties on them",
    "The committee approved the annual budget for research and technology",
    "A vaccine reduced the number of infections in the population",
    "Fishing quotas and the protection of marine species",
    "Processing of personal data by providers of electronic communications",
    "Railway safety, working time of drivers and transport of dangerous goods",
    "The company reported higher revenue while shares fell on the stock market",
    "A novel about a family that leaves its village for the city",
)
"""Warm-up texts for bundles that have none."""
COMPARED_LABELS = 5
"""Number of best labels of a text that are compared between two models."""
_TOGETHER = 8


@runtime_checkable  # the test run checks annotations by isinstance
class WorkRunner(Protocol):
    """Runs a function on a thread for model work, and waits for the result."""

    def __call__(self, work: Callable[[], T], /) -> T:
        """Return what the work returns, or raise what it raises."""
        ...


def warmup_texts_of(bundle: Bundle) -> tuple[str, ...]:
    """Return the warm-up texts of a bundle, or `DEFAULT_TEXTS` if it has none."""
    return read_probes(bundle) or DEFAULT_TEXTS


def check_answers(bundle: Bundle) -> None:
    """Load a bundle on the CPU and make its first predictions, as a service does."""
    parts, texts = read_parts(bundle), warmup_texts_of(bundle)
    try:
        predictor = Predictor(parts, default_scorer=bundle.manifest.default_scorer, device="cpu")
        check_scorers(predictor, _now, texts)
    except LongtailError as error:
        raise BundleCorruptError(f"bundle {bundle.folder.name!r}: {error}") from error


def _now(work: Callable[[], T], /) -> T:
    return work()


def check_scorers(predictor: Any, run: WorkRunner, texts: Sequence[str]) -> None:
    """Try all scorers of a `Predictor`, or of an object with its methods."""
    for scorer in predictor.scorers.names:
        _check_labels(
            scorer,
            predict_together(predictor, run, texts, scorer),
            may_be_none=_may_find_nothing(predictor, scorer),
        )


def _may_find_nothing(predictor: Any, scorer: str) -> bool:
    """Whether a scorer only lists what it finds, as blends do that need no encoder."""
    if scorer in KINDS:
        return KINDS[scorer].may_find_nothing
    return not bool(predictor.scorers.needs_encoder(scorer))


def predict_together(
    predictor: Any, run: WorkRunner, texts: Sequence[str], scorer: str
) -> list[Any]:
    """Return the best labels of texts by a scorer, computed in chunks of texts."""
    k = min(COMPARED_LABELS, len(predictor.catalogue))
    groups = (texts[at : at + _TOGETHER] for at in range(0, len(texts), _TOGETHER))
    return [
        prediction
        for group in groups
        for prediction in run(partial(predictor.predict, group, k=k, scorer=scorer))
    ]


def _check_labels(scorer: str, predictions: Sequence[Any], *, may_be_none: bool) -> None:
    labels = [label for prediction in predictions for label in prediction.labels]
    if not labels and not may_be_none:
        raise LongtailError(
            f"scorer {scorer!r} found no label for any of {len(predictions)} known texts; "
            "train the model again"
        )
    for label in labels:
        if not math.isfinite(label.score):
            raise LongtailError(
                f"scorer {scorer!r} gave label {label.id!r} the score {label.score!r}; the model "
                "is damaged or numerically unstable: train it again"
            )
