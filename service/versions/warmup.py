"""Checks that a model that was just loaded can answer: its first predictions, on known texts.

They run on a thread of their own (`longtail.service.versions.trial_thread`), a few texts at a time,
so that the time limit is looked at in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from longtail.models.predict.predictor import Predictor
from longtail.models.predict.trial import WorkRunner, predict_together

_SHORT_TEXT = "A first text, which makes the compute libraries allocate what they need."
_LONG_TEXT_WORDS = 512


def warm_up(predictor: Predictor, run: WorkRunner) -> None:
    """Make predictions of the shortest and of the largest shapes that requests can have.

    Args:
        predictor: A model that has not answered yet.
        run: Does model work.
    """
    for scorer, texts in _shapes(predictor):
        run(partial(predictor.predict, texts, k=1, scorer=scorer))


def best_labels(
    predictor: Predictor, run: WorkRunner, texts: Sequence[str]
) -> list[frozenset[str]]:
    """Return the ids of the best labels of each text by the default scorer."""
    predictions = predict_together(predictor, run, texts, predictor.scorers.default)
    return [frozenset(label.id for label in prediction.labels) for prediction in predictions]


def overlap(ones: Sequence[frozenset[str]], others: Sequence[frozenset[str]]) -> float:
    """Return the share, from 0 to 1, of labels that two models have in common, over some texts."""
    common = sum(len(one & other) for one, other in zip(ones, others, strict=True))
    total = sum(max(len(one), len(other)) for one, other in zip(ones, others, strict=True))
    return common / total if total else 1.0


def _shapes(predictor: Predictor) -> Iterator[tuple[str, list[str]]]:
    words = predictor.max_tokens or _LONG_TEXT_WORDS
    long_text = "word " * words
    is_encoder_warm = False
    for scorer in predictor.scorers.names:
        yield scorer, [_SHORT_TEXT]
        if is_encoder_warm and predictor.scorers.needs_encoder(scorer):
            continue  # what is left of it depends on no length
        yield scorer, [long_text]
        if predictor.scorers.needs_encoder(scorer):
            yield scorer, [long_text] * max(1, predictor.batch_tokens // words)
            is_encoder_warm = True
