"""JSON as others wrote it."""

from __future__ import annotations

import json
from typing import Any


def parse_json(text: str | bytes) -> Any:
    """Return what a text in JSON says.

    Raises:
        ValueError: It is not JSON, or brackets are nested in it too deeply to be read.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("brackets are nested too deeply") from error
