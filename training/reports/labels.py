"""What a bundle knows of its labels: descriptions, keywords with their weights, training counts.

Reads the catalogue, the sparse model and the encoder's tokenizer, if any; never the encoder.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from longtail.models.bundle.bundle import Bundle
from longtail.models.errors import ConfigError, DataError
from longtail.models.extras import require
from longtail.models.files.durable import write_lines_durably
from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.models.labels.text import keyword_part
from longtail.models.parts.sparse_storage import read_sparse
from longtail.models.scorers.sparse import SparseModel
from longtail.training.runtime.run_log import progress_bar
from longtail.training.sparse.descriptions import positive_weights

if TYPE_CHECKING:
    from transformers import TokenizersBackend


@dataclass(frozen=True, slots=True)
class LabelReport:
    """One label as a model knows it.

    Attributes:
        id: Its identifier.
        name: Its name.
        description: The text that its publisher gave; may be empty.
        pseudo_description: Its pseudo description, or as much of it as the label encoder read.
        training_count: Number of training documents that carry it.
        keywords: The tokens of highest positive weight in its sparse classifier with these weights,
            best first, whether the pseudo description has them or not.
        keywords_read: The keywords that stand whole in `pseudo_description`; None where the model
            has no encoder, so that nothing is read.
    """

    id: str
    name: str
    description: str
    pseudo_description: str
    training_count: int
    keywords: tuple[tuple[str, float], ...]
    keywords_read: tuple[str, ...] | None

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain values; a keyword is [token, weight]."""
        return asdict(self)


def index_of_label(catalogue: LabelCatalogue, id_or_name: str) -> int:
    """Return the row of the label with this id, or else with this name."""
    try:
        return catalogue.index_of(id_or_name)
    except DataError as error:
        closest = ", ".join(map(repr, _closest_names(catalogue, id_or_name)))
        if not closest or any(label.name == id_or_name for label in catalogue):
            raise
        raise DataError(f"{error}; the closest names are {closest}") from error


def report_labels(
    bundle: Bundle, indices: Iterable[int], num_keywords: int
) -> Iterator[LabelReport]:
    """Yield the reports of some labels, in the order given.

    Args:
        bundle: A verified bundle.
        indices: Rows of the catalogue.
        num_keywords: Most keywords shown of a label; of a confidential model none are.
    """
    sparse = read_sparse(bundle)
    num_shown = 0 if bundle.manifest.is_confidential else num_keywords
    read_by_encoder = _reader(bundle)
    for index in indices:
        label = bundle.catalogue[index]
        num_read = read_by_encoder(label.pseudo_description) if read_by_encoder else None
        yield LabelReport(
            id=label.id,
            name=label.name,
            description=label.description,
            pseudo_description=label.pseudo_description[:num_read],
            training_count=label.training_count,
            keywords=_weighed_keywords(sparse, index, num_shown),
            keywords_read=None if num_read is None else _whole_keywords(label, num_read),
        )


def write_reports(bundle: Bundle, path: Path, num_keywords: int) -> int:
    """Write the reports of all labels as JSON lines, in catalogue order, all or nothing.

    Args:
        bundle: A verified bundle.
        path: The file, replaced at once when all is written; its folder is made.
        num_keywords: Most keywords of a label.

    Returns:
        The number of labels.
    """
    num_labels = len(bundle.catalogue)
    reports = report_labels(bundle, range(num_labels), num_keywords)
    bar = progress_bar(reports, total=num_labels, desc="labels", unit="label")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_lines_durably(path, (json.dumps(x.to_json(), ensure_ascii=False) for x in bar))
    except OSError as error:
        raise ConfigError(
            f"labels can't be written to {str(path)!r} ({error}); choose another file"
        ) from error
    return num_labels


def _closest_names(catalogue: LabelCatalogue, name: str) -> list[str]:
    name_of = {label.name.lower(): label.name for label in reversed(tuple(catalogue))}
    return [name_of[found] for found in get_close_matches(name.lower(), list(name_of))]


def _weighed_keywords(
    sparse: SparseModel, index: int, num_keywords: int
) -> tuple[tuple[str, float], ...]:
    row = int(np.searchsorted(sparse.labels, index))
    if row == len(sparse.labels) or sparse.labels[row] != index:
        return ()
    columns, weights = (found[:num_keywords] for found in positive_weights(sparse.weights, row))
    # str gives the shortest decimal that is this float32: 0.3, not 0.30000001192092896.
    return tuple(
        (sparse.tfidf.tokens[column], float(str(weight)))
        for column, weight in zip(columns, weights, strict=True)
    )


def _reader(bundle: Bundle) -> Callable[[str], int] | None:
    """Return what tells how many characters of a text the label encoder reads; None without one."""
    said = bundle.manifest.encoder
    if said is None:
        return None
    require("cpu", f"bundle {str(bundle.folder)!r}: the tokenizer of its encoder")
    from longtail.models.encoders.pretrained import load_tokenizer

    settings = bundle.manifest.training.get("descriptions", {})
    return partial(
        _num_characters_read,
        load_tokenizer(bundle.encoder_folder),
        settings.get("max_tokens", sys.maxsize),  # a bundle that names none has cut none
        said.label_prefix,
    )


def _num_characters_read(
    tokenizer: TokenizersBackend, max_tokens: int, prefix: str, text: str
) -> int:
    """Return how many characters of a text `models.encoders.tokens.tokenize_texts` reads."""
    encoding = tokenizer.backend_tokenizer.encode(prefix + text)
    if len(encoding.ids) <= max_tokens:
        return len(text)
    num_last = max(0, tokenizer.num_special_tokens_to_add() - 1)
    last = max(end for _, end in encoding.offsets[: max_tokens - num_last])
    return max(0, last - len(prefix))


def _whole_keywords(label: Label, num_read: int) -> tuple[str, ...]:
    words, end = [], len(label.pseudo_description) - len(keyword_part(label))
    for word in keyword_part(label).split():
        end += len(word)
        if end > num_read:
            break
        words.append(word)
        end += 1  # the space
    return tuple(words)
