"""In what encoding JSON comes: UTF-8, with a byte order mark or without, and no other."""

from __future__ import annotations

import json

from service.wire.problems import MALFORMED, KindError

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def in_utf_8(content: bytes, what: str = "The body") -> bytes:
    """Return JSON without its byte order mark.

    Args:
        content: As it came.
        what: How it is called in the message.

    Raises:
        KindError: It is in UTF-16 or UTF-32.
    """
    encoding = json.detect_encoding(content)
    if not encoding.startswith("utf-8"):
        raise KindError(MALFORMED, f"{what} is in {encoding[:6].upper()}; send it in UTF-8")
    return content.removeprefix(BYTE_ORDER_MARK)
