"""What must hold of JSON-LD before it is read: no context is fetched from elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from longtail.models.errors import DataError
from longtail.models.files.text_files import lines


def check_contexts(path: Path) -> None:
    """Refuse a file that names a context by its address: it would be fetched.

    Raises:
        DataError: It does, is not JSON, or can't be read.
    """
    try:
        content = json.loads(b"".join(line for _, line in lines(path)))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not JSON in UTF-8 ({error})") from error
    address = _address(content)
    if address is not None:
        raise DataError(
            f"{path}: the context {address!r} lies elsewhere, and nothing is fetched; write the "
            "context itself into the file"
        )


def _address(content: Any) -> str | None:
    """Return the first address of a context."""
    waiting = [content]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            context = value.get("@context")
            for each in [*(context if isinstance(context, list) else [context])]:
                if isinstance(each, str):
                    return each
            if "@import" in value:
                return str(value["@import"])
            waiting += value.values()
    return None
