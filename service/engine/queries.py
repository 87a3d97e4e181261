"""What the engine is asked, and the limits of that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from models.errors import RequestError


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that queries may ask for; see `service.settings.Settings`."""

    max_texts: int
    max_text_characters: int
    max_k: int
    max_filter_labels: int = 10_000
    max_explained_labels: int = 100
    max_queue_tokens: int = 2**16
    max_batch_tokens: int | None = None
    request_timeout_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Query:
    """Texts, and what to answer about each.

    Attributes:
        texts: At least one.
        k: Labels wanted a text.
        scorer: One of the model's; None: its default.
        threshold: Least probability of a label.
        correction: As in `models.predict.predictor.Predictor.rank`.
        tail_dial: As there.
        version: A version's number, or "current"; None: the service's first.
        include: Ids of the only labels wanted; None: all, or those of the set.
        exclude: Ids of labels not wanted.
        include_set: Name of a stored set of labels wanted besides.
        exclude_set: Name of one of labels not wanted besides.
        explain: Whether to say why a text got its labels.
        timeout_s: Seconds in which the answer is of use; None: the service's limit, which also
            bounds it.
    """

    texts: Sequence[str]
    k: int = 5
    scorer: str | None = None
    threshold: float | None = None
    correction: str | None = None
    tail_dial: float = 0.0
    version: int | str | None = None
    include: tuple[str, ...] | None = None
    exclude: tuple[str, ...] = ()
    include_set: str | None = None
    exclude_set: str | None = None
    explain: bool = False
    timeout_s: float | None = None


def check_query(query: Query, limits: Limits) -> None:
    """Check that a query keeps the limits.

    Raises:
        RequestError: It breaks one.
    """
    if not 1 <= len(query.texts) <= limits.max_texts:
        raise RequestError(
            f"the request has {len(query.texts)} texts; wanted 1 to {limits.max_texts}; "
            "send the others in further requests"
        )
    for index, text in enumerate(query.texts):
        if len(text) > limits.max_text_characters:
            raise RequestError(
                f"text {index} has {len(text)} characters; wanted at most "
                f"{limits.max_text_characters}; shorten it"
            )
    if not 1 <= query.k <= limits.max_k:
        raise RequestError(f"k is {query.k}; wanted 1 to {limits.max_k}")
    check_filter(len(query.include or ()) + len(query.exclude), limits)
    num_explained = query.k * len(query.texts)
    if query.explain and num_explained > limits.max_explained_labels:
        raise RequestError(
            f"{num_explained} labels are to be explained (k times texts); wanted at most "
            f"{limits.max_explained_labels}; ask for fewer, or send the texts one by one"
        )


def check_filter(num_ids: int, limits: Limits) -> None:
    """Check that a filter names no more labels than it may.

    Raises:
        RequestError: It does.
    """
    if num_ids > limits.max_filter_labels:
        raise RequestError(
            f"include and exclude name {num_ids} labels; wanted at most "
            f"{limits.max_filter_labels}; let the service store them as a set, and name that"
        )
