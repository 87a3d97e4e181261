"""The Python interface, as blocks of Sphinx's autodoc."""

from __future__ import annotations

import importlib

_PARTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Train, evaluate, load", ("longtail.load", "longtail.train", "longtail.learn", "longtail.evaluate")),
    ("How a corpus is read", ("longtail.models.corpus.columns.CorpusOptions",)),
    ("A loaded model", (
        "longtail.models.interface.model.LoadedModel",
        "longtail.models.interface.model.Predictions",
        "longtail.model.Model",
    )),
    ("Arrow batches, for engines", ("longtail.models.interface.arrow.ArrowPredictor",)),
    ("What was measured", ("longtail.training.assessment.assess.Assessment",)),
    ("With scikit-learn", (
        "longtail.training.estimators.classifier.LongtailClassifier",
        "longtail.training.estimators.scorers.precision_at_k",
        "longtail.training.estimators.scorers.ndcg_at_k",
        "longtail.training.estimators.scorers.psp_at_k",
        "longtail.training.estimators.scorers.metrics_at_k",
    )),
    ("Predict in this process", ("longtail.models.predict.predictor.Predictor", "longtail.models.results")),
    ("Registry", ("longtail.models.bundle.registry.Registry",)),
    ("Ask a service", (
        "longtail.service.client.Client",
        "longtail.service.client.AsyncClient",
        "longtail.service.client.Retry",
        "longtail.service.client.ClientError",
        "longtail.service.client.ConnectionFailedError",
        "longtail.service.client.NoAnswerError",
        "longtail.service.client.ProblemError",
    )),
)  # fmt: skip
"""Headings, and the classes, functions and modules to show."""


def render() -> str:
    """Return the part of the page.

    Raises:
        ModuleNotFoundError, AttributeError: A name is not defined any more.
    """
    parts = []
    for title, names in _PARTS:
        blocks = "\n".join(f".. auto{_kind(name)}:: {name}" for name in names)
        parts.append(f"## {title}\n\n```{{eval-rst}}\n{blocks}\n```")
    return "\n\n".join(parts)


def _kind(name: str) -> str:
    """Return what autodoc calls it: class, exception, function or module."""
    if name.rpartition(".")[2] == "results":
        return "module"
    module, _, attribute = name.rpartition(".")
    value = getattr(importlib.import_module(module), attribute)
    if not isinstance(value, type):
        return "function"
    return "exception" if issubclass(value, Exception) else "class"
