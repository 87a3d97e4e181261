"""Paths that need a treatment of their own."""

from __future__ import annotations

STREAM_PATHS = frozenset({"/v1/batch"})
"""Whose bodies may be of any length, because they are never held whole."""


PAGE_PREFIX = "/page/"


INFERENCE_PROTOCOL = "/v2"
PROTOCOL_PATHS = (INFERENCE_PROTOCOL, "/v1/projects")
"""Where paths of protocols begin that say 400 where our own routes say 422."""


def is_under(path: str, *prefixes: str) -> bool:
    """Whether a path is one of these or below one of them."""
    return any(path == prefix or path.startswith(prefix + "/") for prefix in prefixes)
