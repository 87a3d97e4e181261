"""The kinds of reviewers, by the name that settings give."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

from longtail.models.errors import ConfigError
from longtail.models.extras import require
from longtail.models.review.reviewer import Reviewer

ReviewerKind = Literal["rerank", "chat", "cross-encoder"]


def open_reviewer(
    kind: str, address: str, model: str = "", key: str = "", key_file: Path | None = None
) -> Reviewer:
    """Return a reviewer; nothing is sent yet.

    Args:
        kind: One of `ReviewerKind`.
        address: URL of the server, or folder of the cross-encoder.
        model: As the server names it.
        key: Bearer token for the server; empty: that of the file, or none is sent.
        key_file: Has the token alone.

    Raises:
        ConfigError: There is no such kind, the other values do not fit it, or the file can't be
            read.
    """
    if kind not in get_args(ReviewerKind):
        raise ConfigError(f"reviewer {kind!r}: expected one of {', '.join(get_args(ReviewerKind))}")
    if not address:
        raise ConfigError(f"reviewer {kind!r}: give its address (LONGTAIL_REVIEW_ADDRESS)")
    try:
        key = (key or ("" if key_file is None else key_file.read_text(encoding="utf-8"))).strip()
    except (OSError, UnicodeDecodeError) as error:
        problem = f"can't be read ({type(error).__name__})"
        raise ConfigError(f"--review-key-file {str(key_file)!r} {problem}") from error
    if kind == "cross-encoder":
        require("cpu", "reviewer 'cross-encoder'")
        from longtail.models.review.cross_encoder import CrossEncoder

        return CrossEncoder(address, model, key)
    from longtail.models.review.chat import ChatReviewer  # httpx takes a while
    from longtail.models.review.endpoint import RerankReviewer

    if kind == "chat":
        return ChatReviewer(address, model, key)
    return RerankReviewer(address, model, key)
