"""What a loaded model achieves on documents."""

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


def evaluated(model: LoadedModel, data: Any, split: str = _SPLIT) -> Assessment:
    """Return what every scorer of a model achieves (see `longtail.model.Model.evaluate`)."""
    bundle = model.bundle
    if isinstance(data, str | Path):
        dataset = open_as_trained(Path(data), RECOGNISED, [bundle], model.labels)
        return _assessed(model, dataset, split)
    documents = documents_of(data, options_for(data, bundle))
    with written(documents, bundle, "test.jsonl") as dataset:
        return _assessed(model, dataset, _SPLIT)


def _assessed(model: LoadedModel, dataset: Dataset, split: str) -> Assessment:
    manifest = model.bundle.manifest
    left_out = find_trained_on([model.bundle], dataset, split)
    found = assess(
        model.predictor,
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
