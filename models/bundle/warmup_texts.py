"""Texts that a bundle brings along: a service tries a model on them before it lets it answer."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from longtail.models.bundle.bundle import Bundle
from longtail.models.bundle.manifest import RESTORE
from longtail.models.errors import BundleCorruptError
from longtail.models.files.typed_json import json_forms

PROBES_NAME = "probes.jsonl"
"""The file of a bundle that has them, one {"text": ...} a line; a bundle may lack it."""
MAX_PROBES = 32
"""The first of them are used."""
_MAX_CHARACTERS = 100_000


@dataclass(frozen=True, slots=True)
class _Probe:
    text: Annotated[str, Field(max_length=_MAX_CHARACTERS)]


_, _read = json_forms(_Probe)


def probes_to_jsonl(texts: Iterable[str]) -> str:
    """Return the content of the file."""
    return "".join(json.dumps({"text": text}) + "\n" for text in texts)


def read_probes(bundle: Bundle) -> tuple[str, ...]:
    """Return the texts of a bundle, without blank ones; none where it brings none.

    Raises:
        BundleCorruptError: The file is not as it should be.
    """
    if PROBES_NAME not in bundle.manifest.files:
        return ()
    try:
        lines = bundle.text(PROBES_NAME).splitlines()
        texts = [_read(line).text.strip() for line in lines[:MAX_PROBES]]
    except ValueError as error:
        raise BundleCorruptError(
            f"bundle {bundle.folder.name!r}: file {PROBES_NAME!r} can't be read ({error!r}); "
            f"{RESTORE}"
        ) from error
    return tuple(filter(None, texts))
