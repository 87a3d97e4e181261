"""What the engine is asked, and the limits of that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from longtail.models.errors import RequestError
from longtail.models.options import RankingOptions, default_k, with_schemes
from longtail.models.predict.predictor import Predictor
from longtail.service.engine.label_sets import LabelSets
from longtail.service.schemas.base import Options

MAX_FILTER_LABELS = 10_000
"""Label ids that a request may include and exclude."""
MAX_EXPLAINED_LABELS = 100
"""Labels that a request may have explained: its `k` times its texts."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that queries may ask for; see `longtail.service.settings.Settings`."""

    max_texts: int
    max_text_characters: int
    max_k: int
    max_queue_tokens: int = 2**16
    max_batch_tokens: int | None = None
    request_timeout_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Query:
    """Texts, and what to answer about each.

    Attributes:
        texts: At least one.
        asked: What the request, or the line of a batch, asks for; valid by itself.
        timeout_s: Seconds in which the answer is of use; None: the service's limit, which also
            bounds it.
    """

    texts: Sequence[str]
    asked: Options = field(default_factory=Options)
    timeout_s: float | None = None


def options_for(asked: Options, predictor: Predictor, label_sets: LabelSets) -> RankingOptions:
    """Return what a request asks of a model: the only place where the API's fields become that.

    Raises:
        RequestError: There is no label set of a name.
    """
    has_own_k = "k" in asked.model_fields_set
    label_filter = label_sets.filter_of(asked) if asked.filters_labels else None
    options = RankingOptions(
        k=asked.k if has_own_k else default_k(asked.threshold, len(predictor.catalogue)),
        scorer=predictor.scorers.default if asked.scorer is None else asked.scorer,
        threshold=asked.threshold,
        correction=asked.correction,
        tail_dial=asked.tail_dial,
        aim=asked.aim,
        accept=asked.accept,
        label_filter=label_filter,
        explain=asked.explain,
    )
    if not asked.schemes:
        return options
    own = {name: each.model_dump(exclude_none=True) for name, each in asked.schemes.items()}
    return with_schemes(options, own)


def check_query(query: Query, limits: Limits) -> None:
    """Check that a query keeps the limits.

    Raises:
        RequestError: It breaks one.
    """
    if not 1 <= len(query.texts) <= limits.max_texts:
        raise RequestError(
            f"the request has {len(query.texts)} texts; expected 1 to {limits.max_texts}; "
            "send the others in further requests"
        )
    for index, text in enumerate(query.texts):
        if len(text) > limits.max_text_characters:
            raise RequestError(
                f"text {index} has {len(text)} characters; expected at most "
                f"{limits.max_text_characters}; shorten it"
            )
    asked = query.asked
    k = asked.num_labels if asked.schemes else asked.k
    if k > limits.max_k:
        raise RequestError(f"k is {k}; expected 1 to {limits.max_k}")
    num_labels = len(asked.include or ()) + len(asked.exclude) + len(asked.under)
    if num_labels > MAX_FILTER_LABELS:
        raise RequestError(
            f"include, exclude and under name {num_labels} labels; expected at most "
            f"{MAX_FILTER_LABELS}; let the service store them as a set, and name that"
        )
    num_explained = k * len(query.texts)
    if asked.explain and num_explained > MAX_EXPLAINED_LABELS:
        raise RequestError(
            f"{num_explained} labels are to be explained (k times texts); expected at most "
            f"{MAX_EXPLAINED_LABELS}; ask for fewer, or send the texts one by one"
        )
