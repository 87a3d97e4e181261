"""Checks that a model can answer: each scorer is tried on warm-up texts; scores must be finite.

A service tries a model so before it answers; what publishes a version, or makes one current, tries
it so before `current` moves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, Protocol, TypeVar, runtime_checkable

from longtail.models.bundle.bundle import Bundle
from longtail.models.bundle.trained_on import read_probes
from longtail.models.errors import BundleCorruptError, LongtailError
from longtail.models.kinds.registry import KINDS
from longtail.models.kinds.storage import read_parts
from longtail.models.labels.filters import LabelFilter
from longtail.models.options import RankingOptions
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
_SHORT_TEXT = "A first text, which makes the compute libraries allocate what they need."
_LONG_TEXT_WORDS = 512


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
    parts, where = read_parts(bundle), f"bundle {bundle.folder.name!r}"
    try:
        predictor = Predictor(parts, default_scorer=bundle.manifest.default_scorer, device="cpu")
        try_out(predictor, _now, warmup_texts_of(bundle))
    except LongtailError as error:
        raise BundleCorruptError(f"{where}: {error}") from error
    except Exception as error:  # a scorer may raise anything
        raise BundleCorruptError(
            f"{where}: no answer to known texts ({type(error).__name__}: {error}); train the model "
            "again, and report this"
        ) from error


def _now(work: Callable[[], T], /) -> T:
    return work()


def try_out(predictor: Any, run: WorkRunner, texts: Sequence[str]) -> None:
    """Make the first predictions of a `Predictor`, or of an object with its methods.

    Args:
        predictor: The model.
        run: Does the work.
        texts: At least one, whose answers are checked.
    """
    warm_up(predictor, run)
    check_scorers(predictor, run, texts)


def warm_up(predictor: Any, run: WorkRunner) -> None:
    """Make predictions of the shortest and of the largest shapes that requests can have."""
    for scorer, texts in _shapes(predictor):
        run(partial(predictor.predict, texts, k=1, scorer=scorer))


def _shapes(predictor: Any) -> Iterator[tuple[str, list[str]]]:
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


def check_scorers(predictor: Any, run: WorkRunner, texts: Sequence[str]) -> None:
    """Check the answers of all scorers: to one text and to lists, uncorrected, and filtered."""
    groups = [texts[:1], *(texts[at : at + _TOGETHER] for at in range(0, len(texts), _TOGETHER))]
    batches = [run(partial(predictor.read, group)) for group in groups]
    few = tuple(predictor.catalogue[i].id for i in range(_num_compared(predictor)))
    plain = RankingOptions(k=len(few))
    others = (
        replace(plain, correction="none"),
        replace(plain, label_filter=LabelFilter(include=few)),
        replace(plain, label_filter=LabelFilter(exclude=few[1:])),
    )
    for scorer in predictor.scorers.names:
        options = replace(plain, scorer=scorer)
        found = [run(partial(predictor.predict_batch, each, options)) for each in batches]
        _check_labels(scorer, found, may_be_none=_may_find_nothing(predictor, scorer))
        for other in others:
            options = replace(other, scorer=scorer)
            found = [run(partial(predictor.predict_batch, batches[1], options))]
            _check_labels(scorer, found, may_be_none=True)


def _may_find_nothing(predictor: Any, scorer: str) -> bool:
    """Whether a scorer only lists what it finds, as blends do that need no encoder."""
    if scorer in KINDS:
        return KINDS[scorer].may_find_nothing
    return not bool(predictor.scorers.needs_encoder(scorer))


def best_labels(predictor: Any, run: WorkRunner, texts: Sequence[str]) -> list[frozenset[str]]:
    """Return the ids of the best labels of each text by the default scorer."""
    options: dict[str, Any] = {"k": _num_compared(predictor), "scorer": predictor.scorers.default}
    groups = (texts[at : at + _TOGETHER] for at in range(0, len(texts), _TOGETHER))
    found = (run(partial(predictor.predict, group, **options)) for group in groups)
    return [frozenset(label.id for label in each.labels) for each in chain.from_iterable(found)]


def _num_compared(predictor: Any) -> int:
    return min(COMPARED_LABELS, len(predictor.catalogue))


def _check_labels(scorer: str, groups: Sequence[Sequence[Any]], *, may_be_none: bool) -> None:
    labels = [label for group in groups for prediction in group for label in prediction.labels]
    if not labels and not may_be_none:
        raise LongtailError(
            f"scorer {scorer!r} found no label for any of the known texts; train the model again"
        )
    for label in labels:
        if not math.isfinite(label.score):
            raise LongtailError(
                f"scorer {scorer!r} gave label {label.id!r} the score {label.score!r}; the model "
                "is damaged or numerically unstable: train it again"
            )
