"""Content encodings of bodies and answers."""

from __future__ import annotations

from longtail.service.web.problem_handlers import BodyError
from longtail.service.wire.decompression import Inflater

ENCODINGS = ("identity", "gzip", "deflate")


def inflater_for(encoding: str) -> Inflater | None:
    """Return what unpacks a body of this Content-Encoding; None where it is "identity".

    Raises:
        BodyError: It is packed in a way that is not read.
    """
    encoding = encoding.strip().lower()
    if encoding not in ENCODINGS:
        known = ", ".join(ENCODINGS)
        detail = f"The body's Content-Encoding is {encoding[:40]!r}; expected one of {known}"
        raise BodyError(415, detail, {"Accept-Encoding": known})
    return None if encoding == "identity" else Inflater()


def accepts_gzip(accepted: str) -> bool:
    """Whether an Accept-Encoding header asks for gzip."""
    for choice in accepted.lower().split(","):
        name, _, weight = choice.partition(";")
        if name.strip() in {"gzip", "*"}:
            return weight.replace(" ", "") not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}
    return False
