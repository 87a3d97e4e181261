"""Which of some words stand in the files of a bundle: in texts, vocabularies, names and ids."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool
from safetensors import safe_open

from longtail.models.bundle.bundle import Bundle
from longtail.models.bundle.manifest import MANIFEST_NAME
from longtail.models.labels.search import folded
from longtail.models.parts.model_parts import _VOCABULARY_FILE
from longtail.models.parts.sparse_storage import read_sparse
from longtail.models.scorers.character_terms import unspaced_share
from longtail.models.scorers.sparse import SparseModel

MAX_SHOWN = 10
"""Places, and labels, of a finding."""
_WORD = re.compile(r"[^\W_]{2,}")
_SPACES_OF_PIECES = str.maketrans({"\u0120": " ", "\u2581": " "})
"""What tokenizers write for a space before a word."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A word that a file of a bundle holds.

    Attributes:
        word: In one case and without accents.
        file: Path in the bundle.
        num_places: Strings of the file that hold it.
        places: The first of them, as "line 3/name" or "tokens/12".
        labels: Ids of the first labels that it belongs to; for a word of the vocabulary those
            whose classifier gives it a positive weight, the largest weights first.
    """

    word: str
    file: str
    num_places: int
    places: tuple[str, ...]
    labels: tuple[str, ...]


@dataclass(slots=True)
class _Places:
    count: int
    first: list[str]
    labels: dict[str, None]


def words_of_list(text: str) -> list[str]:
    """Return the words of two letters or more, in one case and without accents, each once."""
    return list(dict.fromkeys(_WORD.findall(folded(text))))


def audit_bundle(bundle: Bundle, words: Iterable[str]) -> Iterator[Finding]:
    """Yield where words stand in a bundle, file by file; numbers of arrays are no text.

    Words are compared whole, in one case and without accents; those of scripts without spaces
    between words are found within others too.
    """
    wanted = set(words)
    unspaced = [word for word in wanted if unspaced_share([word]) == 1]
    for name in (MANIFEST_NAME, *bundle.manifest.files):
        found: dict[str, _Places] = {}
        for place, text, label in _strings(bundle, name):
            lowered = folded(text.translate(_SPACES_OF_PIECES))
            here = wanted.intersection(_WORD.findall(lowered))
            for word in sorted(here.union(x for x in unspaced if x in lowered)):
                places = found.setdefault(word, _Places(0, [], {}))
                places.count += 1
                if len(places.first) < MAX_SHOWN:
                    places.first.append(place)
                if label is not None:
                    places.labels.setdefault(label)
        if name == _VOCABULARY_FILE and found:
            _add_labels_of_tokens(bundle, found)
        for word, places in found.items():
            shown = (tuple(places.first), tuple(places.labels)[:MAX_SHOWN])
            yield Finding(word, name, places.count, *shown)


def _strings(bundle: Bundle, name: str) -> Iterator[tuple[str, str, str | None]]:
    """Yield place, text and label id (or None) of every string in a file."""
    path = bundle.folder / name
    if path.suffix == ".safetensors":
        yield from ((place, text, None) for place, text in _strings_of_arrays(path))
    elif path.suffix == ".jsonl":
        for number, line in enumerate(bundle.text(name).split("\n"), 1):
            if line:
                content = json.loads(line)
                label = str(content["id"]) if "id" in content else None
                for place, text in _strings_of_json(content):
                    yield f"line {number}{place}", text, label
    elif path.suffix == ".json":
        for place, text in _strings_of_json(json.loads(bundle.text(name))):
            yield place.removeprefix("/"), text, None
    else:
        lines = path.read_bytes().decode("utf-8", "replace").split("\n")
        yield from ((f"line {number}", text, None) for number, text in enumerate(lines, 1))


def _strings_of_json(content: Any, place: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(content, str):
        yield place, content
    elif isinstance(content, dict):
        for key, value in content.items():
            yield place, key
            yield from _strings_of_json(value, f"{place}/{key}")
    elif isinstance(content, list):
        for number, value in enumerate(content):
            yield from _strings_of_json(value, f"{place}/{number}")


def _strings_of_arrays(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the metadata and the names of arrays, and arrays of bytes as text."""
    with safe_open(path, framework="np") as file:
        for key, value in (file.metadata() or {}).items():
            yield "metadata", f"{key} {value}"
        for name in file.keys():  # noqa: SIM118
            yield f"array {name}", name
            if file.get_slice(name).get_dtype() in {"U8", "I8"}:
                yield f"array {name}", file.get_tensor(name).tobytes().decode("utf-8", "replace")


def _add_labels_of_tokens(bundle: Bundle, found: dict[str, _Places]) -> None:
    sparse = read_sparse(bundle)
    tokens = [folded(token).split() for token in sparse.tfidf.tokens]
    for word, places in found.items():
        is_column = np.array([word in token for token in tokens], dtype=np.bool_)
        for row in _rows_by_weight(sparse, is_column):
            places.labels.setdefault(bundle.catalogue[int(sparse.labels[row])].id)


def _rows_by_weight(sparse: SparseModel, is_column: Bool[np.ndarray, feature]) -> list[int]:
    """Return the rows with a positive weight in some columns, the largest first."""
    entries = sparse.weights.tocoo()
    is_kept = is_column[entries.col] & (entries.data > 0)
    order = np.argsort(-entries.data[is_kept], kind="stable")
    rows: list[int] = entries.row[is_kept][order].tolist()
    return list(dict.fromkeys(rows))
