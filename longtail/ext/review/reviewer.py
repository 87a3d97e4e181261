"""Reviewers: they score the candidates of a text from outside of the model.

`longtail.ext.review.weights` fits how much these scores count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol, get_args, runtime_checkable

from longtail.ext.review.settings import ReviewerKind
from longtail.models.errors import ConfigError, LongtailError, ignore
from longtail.models.extras import require
from longtail.models.labels.catalogue import Label
from longtail.models.labels.text import PART_END

MAX_TEXT_CHARACTERS = 4000
"""Characters of a text that a reviewer gets; the rest is left out."""
_MAX_CANDIDATE_CHARACTERS, _MAX_KEYWORD_CHARACTERS = 400, 80
_LARGEST_SCORE = 1e6
_FIRST_PAUSE_S = 0.1
_MAX_KEY_BYTES = 16_384


class ReviewError(LongtailError):
    """A reviewer gave no usable scores."""


class PassingReviewError(ReviewError):
    """A reviewer gave no usable scores, and may give some at another attempt."""


@runtime_checkable  # the test run checks annotations by isinstance
class Reviewer(Protocol):
    """Scores candidates; belongs to one event loop, which it never blocks."""

    name: str
    """Kind and model: a fit for one name is not used with another one."""

    @property
    def reads_keywords(self) -> bool:
        """Whether candidates come with the keywords that the label encoder reads."""
        ...

    async def scores(self, text: str, candidates: Sequence[str]) -> list[float]:
        """Return a score for each candidate, higher is better. The caller bounds the time."""
        ...

    async def close(self) -> None:
        """Close all connections and threads."""
        ...


def candidate_text(label: Label, *, with_keywords: bool = False) -> str:
    """Return the name of a label and its description, cut to 400 characters.

    With keywords, it is the pseudo description of DEPL (section 3.2) where there is one, cut to 80.
    """
    if with_keywords and label.pseudo_description:
        return label.pseudo_description[:_MAX_KEYWORD_CHARACTERS]
    parts = filter(None, (label.name.strip(), label.description.strip()))
    return PART_END.join(parts)[:_MAX_CANDIDATE_CHARACTERS]


def number(value: object) -> float:
    """Return a number of an answer; neither true nor text is one, though `float` takes them."""
    if type(value) not in {int, float}:
        raise TypeError
    return float(value)  # type: ignore[arg-type]


async def attempted_scores(
    reviewer: Reviewer,
    text: str,
    candidates: Sequence[str],
    attempts: int,
    before_each: Callable[[], object] = ignore,
) -> list[float]:
    """Return the scores of a reviewer by the first attempt that gives some.

    Args:
        reviewer: Is asked again where its failure may pass, after a pause that doubles.
        text: Cut to `MAX_TEXT_CHARACTERS`.
        candidates: Texts of labels.
        attempts: The most, at least 1.
        before_each: Called before each attempt; what it raises ends them.
    """
    for attempt in range(1, attempts + 1):
        before_each()
        try:
            found = await reviewer.scores(text[:MAX_TEXT_CHARACTERS], candidates)
            break
        except PassingReviewError:
            if attempt == attempts:
                raise
        await asyncio.sleep(_FIRST_PAUSE_S * 2 ** (attempt - 1))
    are_usable = all(abs(score) <= _LARGEST_SCORE for score in found)  # NaN is not, either
    if len(found) != len(candidates) or not are_usable:
        got = f"got {len(found)} scores"
        raise ReviewError(f"{got}, expected {len(candidates)} from -1e6 to 1e6")
    return found


def open_reviewer(
    kind: str, address: str, model: str = "", key: str = "", key_file: Path | None = None
) -> Reviewer:
    """Return a reviewer; nothing is sent yet.

    Args:
        kind: One of `ReviewerKind`.
        address: URL of the server, or folder of the cross-encoder.
        model: As the server names it.
        key: Bearer token for the server; empty: that of the file, or none is sent.
        key_file: Has the token alone; no device or pipe.
    """
    if kind not in get_args(ReviewerKind):
        raise ConfigError(f"reviewer {kind!r}: expected one of {', '.join(get_args(ReviewerKind))}")
    if not address:
        raise ConfigError(f"reviewer {kind!r}: give its address (LONGTAIL_REVIEW_ADDRESS)")
    key = key.strip()
    if not key and key_file is not None:
        key = _key_in(key_file)
    if kind == "cross-encoder":
        require("cpu", "reviewer 'cross-encoder'")
        from longtail.ext.review.cross_encoder import CrossEncoder

        return CrossEncoder(address, model, key)
    from longtail.ext.review.endpoint import (
        ChatReviewer,  # httpx takes a while
        RerankReviewer,
    )

    if kind == "chat":
        return ChatReviewer(address, model, key)
    return RerankReviewer(address, model, key)


def _key_in(file: Path) -> str:
    with suppress(OSError, UnicodeDecodeError):
        if file.is_file() and file.stat().st_size <= _MAX_KEY_BYTES:
            return file.read_text(encoding="utf-8").strip()
    raise ConfigError(
        f"--review-key-file {str(file)!r}: can't be read; expected a file of at most "
        f"{_MAX_KEY_BYTES} bytes, with a key alone"
    )
