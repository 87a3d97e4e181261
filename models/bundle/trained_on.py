"""The record of the documents that a model was trained on, so that it is not measured on them.

A text is recorded as a digest: BLAKE2b, of 8 bytes, of its UTF-8 bytes with white space normalised.
With a text in hand one can test whether the model was trained on it, so an attacker can test
guessed texts: titles, names, numbers. Ids of documents are not recorded: an edited text is new.

`read_probes` reads the warm-up texts of a bundle: a service tries a model on them before it lets it
answer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
from jaxtyping import Bool, UInt64
from pydantic import Field

from longtail.models.bundle.bundle import Bundle
from longtail.models.bundle.manifest import RESTORE
from longtail.models.errors import BundleCorruptError
from longtail.models.files.typed_json import json_forms

RECORD_NAME = "trained_on.json"
DIGESTS_NAME = "trained_on.safetensors"
TRAIN, DEV = "train", "dev"
_NAMES = (f"{TRAIN}_texts", f"{DEV}_texts")


@dataclass(frozen=True, slots=True)
class TrainedOn:
    """The documents that a model was trained on, and how they were read.

    Attributes:
        text_columns: Columns, or fields, of the text, in the order in which they were joined; empty
            where the files have none.
        options: The options of the corpus that were given (see `CorpusOptions.to_json`).
        divided_by: What the splits of a corpus in one file follow from: "id" or "text"; None: the
            corpus has files for its splits, or only a training split.
        digests: Digests of texts: "train_texts", and "dev_texts" of the documents that the model
            was calibrated on, each rising, each once; none in a bundle that is to reveal none.
    """

    text_columns: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    divided_by: str | None = None
    digests: Mapping[str, UInt64[np.ndarray, _]] = field(default_factory=dict)

    def knows(self, split: str, texts: UInt64[np.ndarray, document]) -> Bool[np.ndarray, document]:
        """Return which documents are among those of a split, "train" or "dev", by their texts."""
        found: Bool[np.ndarray, document] = np.isin(texts, self.digests[f"{split}_texts"])
        return found

    def texts(self) -> dict[str, str]:
        """Return the text file of a bundle that holds this, by its name."""
        content = {
            "divided_by": self.divided_by,
            "options": dict(self.options),
            "text_columns": list(self.text_columns),
        }
        return {RECORD_NAME: json.dumps(content, sort_keys=True, indent=1) + "\n"}

    def tensors(self) -> dict[str, dict[str, np.ndarray]]:
        """Return the arrays of a bundle that holds this, by name of the file; none without."""
        return {DIGESTS_NAME: dict(self.digests)} if self.digests else {}


@dataclass(frozen=True, slots=True)
class _Stored:
    divided_by: Literal["id", "text"] | None
    options: dict[str, Any]
    text_columns: tuple[str, ...]


_, _read = json_forms(_Stored)


def read_trained_on(bundle: Bundle) -> TrainedOn:
    """Return the record of a bundle; an empty one where it has none."""
    if RECORD_NAME not in bundle.manifest.files:
        return TrainedOn()
    try:
        stored: _Stored = _read(bundle.text(RECORD_NAME))
        digests = bundle.tensors(DIGESTS_NAME) if DIGESTS_NAME in bundle.manifest.tensors else {}
        record = TrainedOn(stored.text_columns, stored.options, stored.divided_by, digests)
        _check(record)
    except (ValueError, TypeError) as error:
        raise BundleCorruptError(
            f"bundle {bundle.folder.name!r}: the record of its training documents can't be read "
            f"({error!r}); {RESTORE}"
        ) from error
    return record


def digest_of(text: str) -> int:
    """Return the digest of a text."""
    content = " ".join(text.split()).encode("utf-8", "surrogatepass")
    found = hashlib.blake2b(content, digest_size=8, person=b"longtail text").digest()
    return int.from_bytes(found, "big") or 1


def digests_of(texts: Iterable[str]) -> UInt64[np.ndarray, _]:
    """Return the digests of texts, in their order."""
    return np.fromiter(map(digest_of, texts), dtype=np.uint64)


def _check(record: TrainedOn) -> None:
    if record.digests and set(record.digests) != set(_NAMES):
        raise TypeError(f"arrays {sorted(record.digests)}, expected {sorted(_NAMES)}")
    for name, found in record.digests.items():
        if found.ndim != 1 or found.dtype != np.uint64 or np.any(found[1:] <= found[:-1]):
            raise TypeError(f"array {name!r} is not of rising 64-bit digests")


PROBES_NAME = "probes.jsonl"
"""The file of a bundle that has them, one {"text": ...} a line; a bundle may lack it."""
MAX_PROBES = 32
"""The first of them are used."""
_MAX_CHARACTERS = 100_000


@dataclass(frozen=True, slots=True)
class _Probe:
    text: Annotated[str, Field(max_length=_MAX_CHARACTERS)]


_, _read_probe = json_forms(_Probe)


def probes_to_jsonl(texts: Iterable[str]) -> str:
    """Return the content of the file."""
    return "".join(json.dumps({"text": text}) + "\n" for text in texts)


def read_probes(bundle: Bundle) -> tuple[str, ...]:
    """Return the texts of a bundle, without blank ones; none where it brings none."""
    if PROBES_NAME not in bundle.manifest.files:
        return ()
    try:
        lines = bundle.text(PROBES_NAME).splitlines()
        texts = [_read_probe(line).text.strip() for line in lines[:MAX_PROBES]]
    except ValueError as error:
        raise BundleCorruptError(
            f"bundle {bundle.folder.name!r}: file {PROBES_NAME!r} can't be read ({error!r}); "
            f"{RESTORE}"
        ) from error
    return tuple(filter(None, texts))
