"""A loaded model that can also be measured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from longtail.models.bundle.bundle import Bundle
from longtail.models.bundle.trained_on import read_trained_on
from longtail.models.interface.given_texts import is_frame
from longtail.models.interface.model import LoadedModel
from longtail.training.assessment.assess import Assessment, assess
from longtail.training.assessment.untrained import (
    division_as_trained,
    find_trained_on,
    open_as_trained,
)
from longtail.training.data.dataset import Dataset, open_dataset
from longtail.training.estimators.corpus import Documents, documents_of, write_corpus
from longtail.training.formats.columns import TEXT_NAMES
from longtail.training.formats.options import RECOGNISED, CorpusOptions

_SPLIT = "test"


class Model(LoadedModel):
    """A trained model, loaded. Not thread-safe on a GPU: let one thread own it."""

    def evaluate(self, data: Any, split: str = _SPLIT) -> Assessment:
        """Return what every scorer achieves.

        Args:
            data: Folder of a corpus; or documents: a data frame with the columns `text` and
                `labels`, or with those that the model was trained on, or a pair of texts and lists
                of labels. Documents that the model was trained on are left out; labels that it
                lacks count as missed.
            split: Of the corpus in a folder: train, dev or test; of documents, all are measured.

        Raises:
            DataError: The documents can't be used, or the model knows none of their labels; or most
                of them were trained on.
        """
        if isinstance(data, str | Path):
            dataset = open_as_trained(Path(data), RECOGNISED, [self.bundle], self.labels)
            return self._assessed(dataset, split)
        documents = documents_of(data, options_for(data, self.bundle))
        with written(documents, self.bundle, "test.jsonl") as dataset:
            return self._assessed(dataset, _SPLIT)

    def _assessed(self, dataset: Dataset, split: str) -> Assessment:
        manifest = self.bundle.manifest
        left_out = find_trained_on([self.bundle], dataset, split)
        found = assess(
            self.predictor,
            left_out.view(dataset, split),
            split,
            num_training_documents=manifest.training_document_count,
            reliability=True,
            thresholds=manifest.thresholds,
        )
        return replace(found, left_out=left_out)


def options_for(data: Any, bundle: Bundle) -> CorpusOptions:
    """Return the options of the training where a data frame has its columns of the text."""
    record = read_trained_on(bundle)
    if record is None or not is_frame(data):
        return RECOGNISED
    names = {str(name) for name in data.columns}
    named = {"text_columns": list(record.text_columns), **record.options}
    if not {*record.text_columns} <= names or {*record.text_columns} <= {*TEXT_NAMES}:
        return RECOGNISED
    label, id_ = (named.get(name) for name in ("label_column", "id_column"))
    return CorpusOptions(
        tuple(named["text_columns"]),
        label if label in names else None,
        named.get("label_delimiter"),
        id_ if id_ in names else None,
    )


@contextmanager
def written(documents: Documents, bundle: Bundle, name: str) -> Iterator[Dataset]:
    """Write documents as a corpus for the while.

    Args:
        documents: To be measured on.
        bundle: That is measured.
        name: Of the file (see `write_corpus`).

    Yields:
        The corpus.
    """
    with TemporaryDirectory(prefix="longtail-") as folder:
        write_corpus(Path(folder), documents, name=name)
        division = division_as_trained(bundle)
        dataset = open_dataset(
            Path(folder), known=bundle.catalogue, division=division, called=documents.name
        )
        yield dataset.with_text_columns(documents.text_columns)
