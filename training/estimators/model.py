"""What a loaded model achieves on documents."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from longtail.models.bundle.bundle import Bundle
from longtail.models.bundle.trained_on import read_trained_on
from longtail.models.errors import DataError
from longtail.models.interface.given_texts import is_frame
from longtail.models.interface.model import LoadedModel
from longtail.training.assessment.assess import Assessment, assess
from longtail.training.assessment.untrained import (
    division_as_trained,
    find_trained_on,
    open_as_trained,
    with_options_of,
)
from longtail.training.data.dataset import Dataset, open_dataset
from longtail.training.estimators.corpus import OF_FRAMES, Documents, documents_of, write_corpus
from longtail.training.formats.columns import TEXT_NAMES
from longtail.training.formats.options import RECOGNISED, CorpusOptions

logger = logging.getLogger(__name__)

_SPLIT = "test"


def evaluated(model: LoadedModel, data: Any, split: str = _SPLIT) -> Assessment:
    """Return what every scorer of a model achieves (see `longtail.model.Model.evaluate`)."""
    bundle = model.bundle
    if isinstance(data, str | Path):
        dataset = open_as_trained(Path(data), RECOGNISED, [bundle], model.labels)
        return _assessed(model, dataset, split)
    documents = documents_as_trained(data, RECOGNISED, bundle)
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


def documents_as_trained(data: Any, options: CorpusOptions, bundle: Bundle) -> Documents:
    """Return documents, a data frame read as the training read its own where it has these columns.

    Arguments and errors are those of `documents_of`; `bundle` has the record of the training.
    """
    record = read_trained_on(bundle)
    if is_frame(data) and record is not None:
        names = {str(name) for name in data.columns}
        before = {name: x for name, x in record.options.items() if name in OF_FRAMES}
        if not {*record.text_columns} <= {*TEXT_NAMES}:
            before = {"text_columns": record.text_columns, **before}
        if before.get("id_column") not in names:
            before.pop("id_column", None)
        filled = with_options_of(before, options)
        with suppress(DataError):
            documents = documents_of(data, filled)
            if filled != options:
                logger.warning(
                    "the data frame: read with the options of the training: %s", filled.to_json()
                )
            return documents
    return documents_of(data, options)


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
        yield dataset.written_from(documents.text_columns, documents.options)
