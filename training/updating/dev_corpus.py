"""What a learned version is calibrated on: documents of the corpus's dev split, and new ones."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from models.files.durable import write_lines_durably
from models.labels.catalogue import LabelCatalogue
from training.data.dataset import Dataset, open_dataset
from training.updating.labels import SaidOfText
from training.updating.texts import dev_rows

logger = logging.getLogger(__name__)


def write_dev_corpus(
    corpus: Dataset, catalogue: LabelCatalogue, texts: Sequence[SaidOfText], folder: Path
) -> Dataset:
    """Write a corpus that has a dev split alone, over all labels of a model.

    Args:
        corpus: With a dev split, of which some documents are taken (see `dev_rows`).
        catalogue: The labels of the model, those of the corpus among them.
        texts: That join it.
        folder: Made where it is not there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_lines_durably(
        folder / "labels.jsonl",
        (json.dumps({"id": label.id, "name": label.id}) for label in catalogue),
    )
    split = corpus.split("dev")
    chosen = split.part(dev_rows(split.texts()))
    ids = [label.id for label in corpus.labels]
    old = ((each.text, [ids[row] for row in each.labels]) for each in chosen)
    new = ((each.text, [catalogue[row].id for row in sorted(each.right)]) for each in texts)
    write_lines_durably(folder / "dev.jsonl", _lines([*old, *new]))
    return open_dataset(folder)


def _lines(documents: Iterable[tuple[str, list[str]]]) -> Iterator[str]:
    return (json.dumps({"text": text, "labels": labels}) for text, labels in documents)
