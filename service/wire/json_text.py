"""JSON text before it is parsed: its encoding (UTF-8 alone), and how much there is to parse."""

from __future__ import annotations

import json
import re

from longtail.service.wire.problems import MALFORMED, TOO_MANY_ELEMENTS, KindError

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
INLINE_BYTES = 2**16
"""JSON up to this size is parsed on the event loop: that takes a few milliseconds at most."""
MAX_ELEMENTS = 300_000
"""Most elements of lists and objects in one JSON text; see `check_elements`."""
_KEY_WEIGHT = 10
"""A key of an object takes about as much memory and time as ten numbers of a list."""
# A string that does not end matches, too: else each of its quotes would be tried as a beginning.
_STRING_OR_SIGN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[,:\[{]', re.DOTALL)


def in_utf_8(content: bytes, what: str = "The body") -> bytes:
    """Return JSON without its byte order mark.

    Args:
        content: The bytes as they were received.
        what: Name of the content for the message.

    Raises:
        KindError: It is in UTF-16 or UTF-32.
    """
    encoding = json.detect_encoding(content)
    if not encoding.startswith("utf-8"):
        raise KindError(MALFORMED, f"{what} is in {encoding[:6].upper()}; send it in UTF-8")
    return content.removeprefix(BYTE_ORDER_MARK)


def check_elements(content: bytes, what: str = "The body") -> None:
    """Check that a JSON text has at most `MAX_ELEMENTS` elements, without parsing it.

    A few bytes of JSON become a Python object of a hundred bytes, and an error message of a
    thousand, so the number of bytes alone does not bound the work.

    Args:
        content: The JSON text; it need not be valid.
        what: Name of the content for the message.

    Raises:
        KindError: It has more elements; each key of an object counts as ten.
    """
    if len(content) <= INLINE_BYTES or _weight_of_signs(content) <= MAX_ELEMENTS:
        return
    weight = 0
    for found in _STRING_OR_SIGN.finditer(content):  # signs inside of strings do not count
        weight += _WEIGHTS.get(found[0], 0)
        if weight > MAX_ELEMENTS:
            raise KindError(
                TOO_MANY_ELEMENTS,
                f"{what} has more than {MAX_ELEMENTS} list items and object fields (a field counts "
                f"as {_KEY_WEIGHT}); send fewer at a time",
            )


_WEIGHTS = {b",": 1, b"[": 1, b"{": 1, b":": _KEY_WEIGHT}


def _weight_of_signs(content: bytes) -> int:
    """Return an upper bound on the weight of the elements: signs inside of strings count, too."""
    return sum(weight * content.count(sign) for sign, weight in _WEIGHTS.items())
