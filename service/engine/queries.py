"""What the engine is asked, and the limits of that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from longtail.models.errors import RequestError
from longtail.models.options import RankingOptions
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
class NamedLabels:
    """The labels that a query may get, as it names them.

    Attributes:
        include: Ids of the only labels to return; None: all, or those of the set.
        exclude: Ids of labels not to return.
        include_set: Name of a stored set of labels to return besides `include`.
        exclude_set: Name of one of labels not to return besides `exclude`.
        under: Ids of labels: only these and those below them; empty: no such condition.
    """

    include: tuple[str, ...] | None = None
    exclude: tuple[str, ...] = ()
    include_set: str | None = None
    exclude_set: str | None = None
    under: tuple[str, ...] = ()

    @property
    def num_ids(self) -> int:
        """Labels that are named one by one."""
        return len(self.include or ()) + len(self.exclude) + len(self.under)


@dataclass(frozen=True, slots=True)
class Query:
    """Texts, and what to answer about each.

    Attributes:
        texts: At least one.
        options: What to answer; they have no filter yet.
        labels: What becomes the filter.
        version: A version's number, or "current"; None: the service's first.
        timeout_s: Seconds in which the answer is of use; None: the service's limit, which also
            bounds it.
        language: Of the labels' names; None: that of the model.
        has_own_k: Whether k was asked for; else it is at most the number of labels.
    """

    texts: Sequence[str]
    options: RankingOptions = field(default_factory=RankingOptions)
    labels: NamedLabels = field(default_factory=NamedLabels)
    version: int | str | None = None
    timeout_s: float | None = None
    language: str | None = None
    has_own_k: bool = True


def query_of(requested: Options, texts: Sequence[str], timeout_s: float | None = None) -> Query:
    """Return what a request, or a line of a batch, asks of the engine.

    The only place where the fields of the API become `RankingOptions`.
    """
    return Query(
        texts=texts,
        options=RankingOptions(
            k=requested.k,
            scorer=requested.scorer,
            threshold=requested.threshold,
            correction=requested.correction,
            tail_dial=requested.tail_dial,
            aim=requested.aim,
            accept=requested.accept,
            explain=requested.explain,
        ),
        labels=NamedLabels(
            include=None if requested.include is None else tuple(requested.include),
            exclude=tuple(requested.exclude),
            include_set=requested.include_set,
            exclude_set=requested.exclude_set,
            under=tuple(requested.under),
        ),
        version=requested.version,
        timeout_s=timeout_s,
        language=requested.language,
        has_own_k="k" in requested.model_fields_set,
    )


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
    options = query.options
    if options.k > limits.max_k:
        raise RequestError(f"k is {options.k}; expected 1 to {limits.max_k}")
    _check_filter(query.labels)
    num_explained = options.k * len(query.texts)
    if options.explain and num_explained > MAX_EXPLAINED_LABELS:
        raise RequestError(
            f"{num_explained} labels are to be explained (k times texts); expected at most "
            f"{MAX_EXPLAINED_LABELS}; ask for fewer, or send the texts one by one"
        )


def _check_filter(labels: NamedLabels) -> None:
    """Check that a filter names no more labels than it may."""
    if labels.num_ids > MAX_FILTER_LABELS:
        raise RequestError(
            f"include, exclude and under name {labels.num_ids} labels; expected at most "
            f"{MAX_FILTER_LABELS}; let the service store them as a set, and name that"
        )
