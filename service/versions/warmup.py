"""Checks that a model that was just loaded can answer: its first predictions, on known texts.

They run on a thread of their own (`longtail.service.versions.trial_thread`), a few texts at a time,
so that the time limit is looked at in between.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Protocol, TypeVar

from longtail.models.bundle.bundle import Bundle
from longtail.models.bundle.warmup_texts import read_probes
from longtail.models.errors import LongtailError
from longtail.models.kinds.registry import KINDS
from longtail.models.predict.predictor import Predictor
from longtail.models.results import Prediction

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
"""The best labels of a text that are compared between two models."""
_SHORT_TEXT = "A first text, which makes the compute libraries allocate what they need."
_LONG_TEXT_WORDS = 512
_TOGETHER = 8


class WorkRunner(Protocol):
    """Does something on a thread for model work, and waits for it."""

    def __call__(self, work: Callable[[], T], /) -> T:
        """Return what the work returns, or raise what it raises."""
        ...


def warmup_texts_of(bundle: Bundle) -> tuple[str, ...]:
    """Return the warm-up texts of a bundle: its own, or ours where it has none.

    Raises:
        BundleCorruptError: Its file of texts is not as it should be.
    """
    return read_probes(bundle) or DEFAULT_TEXTS


def warm_up(predictor: Predictor, run: WorkRunner) -> None:
    """Make predictions of the shortest and of the largest shapes that requests can have.

    Args:
        predictor: A model that has not answered yet.
        run: Does model work.
    """
    for scorer, texts in _shapes(predictor):
        run(partial(predictor.predict, texts, k=1, scorer=scorer))


def check_scorers(predictor: Predictor, run: WorkRunner, texts: Sequence[str]) -> None:
    """Try all scorers.

    Raises:
        LongtailError: A scorer gives a score that is no finite number, or no label to any text.
    """
    for scorer in predictor.scorers:
        _check_labels(
            scorer,
            _predict(predictor, run, texts, scorer),
            may_be_none=_may_find_nothing(predictor, scorer),
        )


def best_labels(
    predictor: Predictor, run: WorkRunner, texts: Sequence[str]
) -> list[frozenset[str]]:
    """Return the ids of the best labels of each text by the default scorer."""
    predictions = _predict(predictor, run, texts, predictor.default_scorer)
    return [frozenset(label.id for label in prediction.labels) for prediction in predictions]


def overlap(ones: Sequence[frozenset[str]], others: Sequence[frozenset[str]]) -> float:
    """Return the share, from 0 to 1, of labels that two models have in common, over some texts."""
    common = sum(len(one & other) for one, other in zip(ones, others, strict=True))
    total = sum(max(len(one), len(other)) for one, other in zip(ones, others, strict=True))
    return common / total if total else 1.0


def _may_find_nothing(predictor: Predictor, scorer: str) -> bool:
    """Whether a scorer only lists what it finds, as blends do that need no encoder."""
    if scorer in KINDS:
        return KINDS[scorer].may_find_nothing
    return not predictor.needs_encoder(scorer)


def _shapes(predictor: Predictor) -> Iterator[tuple[str, list[str]]]:
    words = predictor.max_tokens or _LONG_TEXT_WORDS
    long_text = "word " * words
    is_encoder_warm = False
    for scorer in predictor.scorers:
        yield scorer, [_SHORT_TEXT]
        if is_encoder_warm and predictor.needs_encoder(scorer):
            continue  # what is left of it depends on no length
        yield scorer, [long_text]
        if predictor.needs_encoder(scorer):
            yield scorer, [long_text] * max(1, predictor.batch_tokens // words)
            is_encoder_warm = True


def _predict(
    predictor: Predictor, run: WorkRunner, texts: Sequence[str], scorer: str
) -> list[Prediction]:
    k = min(COMPARED_LABELS, len(predictor.catalogue))
    groups = (texts[at : at + _TOGETHER] for at in range(0, len(texts), _TOGETHER))
    return [
        prediction
        for group in groups
        for prediction in run(partial(predictor.predict, group, k=k, scorer=scorer))
    ]


def _check_labels(scorer: str, predictions: Sequence[Prediction], *, may_be_none: bool) -> None:
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
