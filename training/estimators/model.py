"""The model of a fitted estimator: its settings, its bundle, and its quality on documents.

A pickled or copied estimator carries the files of its bundle, safetensors and JSON, which are
verified when they are opened again.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sklearn.utils import check_random_state

from longtail.models.bundle.bundle import Bundle, open_bundle
from longtail.models.bundle.manifest import MANIFEST_NAME, Manifest
from longtail.models.bundle.trained_on import read_trained_on
from longtail.models.corpus.columns import RECOGNISED, TEXT, TEXT_NAMES, TITLE, CorpusOptions
from longtail.models.errors import DataError
from longtail.models.files.durable import sync_tree
from longtail.models.interface.given_texts import is_frame
from longtail.models.interface.model import LoadedModel
from longtail.models.names import NAMES
from longtail.training.assessment.assess import Assessment, assess
from longtail.training.assessment.untrained import (
    division_named,
    find_trained_on,
    open_as_trained,
    with_options_of,
)
from longtail.training.configuration.run import NO_ENCODER, TrainingConfig, read_config
from longtail.training.data.dataset import Dataset, open_dataset
from longtail.training.estimators.corpus import OF_FRAMES, Documents, documents_of, write_corpus
from longtail.training.estimators.targets import InvalidInputError

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
    if is_frame(data):
        names = {str(name) for name in data.columns}
        before = {name: x for name, x in record.options.items() if name in OF_FRAMES}
        is_alone = record.text_columns == (TEXT,) and TITLE in names
        if is_alone or not {*record.text_columns} <= {*TEXT_NAMES}:
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

    Yields:
        The corpus.
    """
    with TemporaryDirectory(prefix="longtail-") as folder:
        write_corpus(Path(folder), documents, name=name)
        division = division_named(read_trained_on(bundle).divided_by)
        dataset = open_dataset(
            Path(folder), known=bundle.catalogue, division=division, called=documents.name
        )
        yield dataset.written_from(documents.text_columns, documents.options)


_FOLDER_NAME = "bundle"


class OwnFolder:
    """A temporary folder that is removed when nothing refers to this object any more."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="longtail-"))
        self._removal = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)

    def remove(self) -> None:
        """Remove the folder now."""
        self._removal()


def files_of(bundle: Bundle) -> dict[str, bytes]:
    """Return all files of a bundle, by their paths in it."""
    names = [MANIFEST_NAME, *bundle.manifest.files]
    return {name: (bundle.folder / name).read_bytes() for name in names}


def restored(files: Mapping[str, bytes], folder: Path) -> Bundle:
    """Write the files of a bundle into a folder that has none, verify and open it.

    Raises:
        BundleCorruptError: They are not as they were written.
    """
    root = folder / _FOLDER_NAME
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return open_bundle(root)


def copied(bundle: Bundle, folder: Path) -> Manifest:
    """Copy a bundle to a new folder, durably, and return its manifest."""
    shutil.copytree(bundle.folder, folder)
    sync_tree(folder)
    return bundle.manifest


_MOST_SEED = 2**31 - 1


def settings_of(
    config: str | Path | Mapping[str, Any] | None,
    encoder: str | None,
    random_state: Any,
    *,
    has_label_texts: bool,
) -> TrainingConfig:
    """Return what a run of an estimator trains.

    Args:
        config: A YAML file, or top-level keys of the configuration; None: the defaults.
        encoder: Its name, as the configuration has it; None: nothing that needs one is trained.
        random_state: As scikit-learn has it; None: the seed of the configuration.
        has_label_texts: Whether labels are called by words, so that names can be looked for.

    Raises:
        ConfigError: The configuration is not as it has to be.
        InvalidInputError: It names scorers that need an encoder, and there is to be none.
    """
    is_mapping = isinstance(config, Mapping)
    overrides: dict[str, Any] = dict(config) if isinstance(config, Mapping) else {}
    path = None if config is None or is_mapping else Path(str(config))
    if random_state is not None:
        overrides["seed"] = _seed_of(random_state)
    if encoder is not None:
        return read_config(path, overrides | {"encoder": encoder})
    settings = read_config(path, overrides)
    if settings.has_default_scorers:
        settings = read_config(path, overrides | {"encoder": NO_ENCODER})
        if not has_label_texts:
            scorers = [name for name in settings.scorers if name != NAMES]
            settings = read_config(path, overrides | {"scorers": scorers})
    if settings.is_dense:
        raise InvalidInputError(
            f"encoder is None, and the configuration has {', '.join(settings.scorers)}; name an "
            "encoder, such as encoder='packaged', or leave out the scorers that need one"
        )
    return settings


def _seed_of(random_state: Any) -> int:
    if isinstance(random_state, Integral):
        return int(random_state)
    return int(check_random_state(random_state).randint(_MOST_SEED))
