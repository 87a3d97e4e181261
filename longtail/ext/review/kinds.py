"""The kinds of reviewers, by the name that settings give."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import get_args

from longtail.ext.review.reviewer import Reviewer
from longtail.models.errors import ConfigError
from longtail.models.extras import require
from longtail.service.settings import ReviewerKind

_MAX_KEY_BYTES = 16_384


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

    Raises:
        ConfigError: There is no such kind, the other values do not fit it, or the file can't be
            read.
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
