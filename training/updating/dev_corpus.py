"""What a learned version is calibrated on: documents of the corpus's dev split, and new ones."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from longtail.models.edit.split_shards import part_of
from longtail.models.files.durable import make_private_folder, write_lines_durably
from longtail.models.labels.catalogue import LabelCatalogue
from longtail.models.lexical.matcher import FindHistory
from longtail.models.parts.model_parts import ModelParts
from longtail.training.data.dataset import Dataset, open_dataset
from longtail.training.updating.labels import SaidOfText
from longtail.training.updating.texts import dev_rows


def corpus_part(parts: ModelParts, corpus: Dataset) -> ModelParts:
    """Return the part of a model that scores the labels of a corpus, which come first in it.

    Nobody has looked for labels that were added later in the dev documents of the corpus: they
    would count as wrong where they are right.

    Args:
        parts: The model.
        corpus: That it was trained on.
    """
    num_labels = len(corpus.labels)
    if num_labels == len(parts.catalogue):
        return parts
    part, names = part_of(parts, range(num_labels)), parts.names
    if names is None:
        return part
    known = replace(
        names,
        catalogue=LabelCatalogue(islice(names.catalogue, num_labels)),
        history=FindHistory(names.history.found[:num_labels], names.history.right[:num_labels]),
    )
    return replace(part, names=known)


def write_dev_corpus(corpus: Dataset, texts: Sequence[SaidOfText], folder: Path) -> Dataset:
    """Write a corpus that has a dev split alone, over the labels of another one; it is private.

    Args:
        corpus: With a dev split, of which some documents are taken (see `dev_rows`).
        texts: That join it; labels behind those of the corpus are left out.
        folder: Made where it is not there.
    """
    ids = [label.id for label in corpus.labels]
    make_private_folder(folder)
    write_lines_durably(
        folder / "labels.jsonl",
        (json.dumps({"id": label_id, "name": label_id}) for label_id in ids),
    )
    split = corpus.split("dev")
    chosen = split.part(dev_rows(split.texts()))
    old = ((each.text, [ids[row] for row in each.labels]) for each in chosen)
    new = ((each.text, [ids[x] for x in sorted(each.right) if x < len(ids)]) for each in texts)
    write_lines_durably(folder / "dev.jsonl", _lines([*old, *new]), is_private=True)
    return open_dataset(folder)


def _lines(documents: Iterable[tuple[str, list[str]]]) -> Iterator[str]:
    return (json.dumps({"text": text, "labels": labels}) for text, labels in documents)
