"""A loaded model that can also be measured."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from models.errors import DataError
from models.interface.model import LoadedModel
from training.assessment.assess import Assessment, assess
from training.data.dataset import Dataset, open_dataset
from training.estimators.corpus import Documents, documents_of, write_documents

_SPLIT = "test"
_MAX_SHOWN = 5


class Model(LoadedModel):
    """A trained model, loaded. Not thread-safe on a GPU: let one thread own it."""

    def evaluate(self, data: Any, split: str = _SPLIT) -> Assessment:
        """Return what every scorer achieves.

        Args:
            data: Folder of a corpus; or documents: a data frame with the columns `text` and
                `labels`, or a pair of texts and lists of labels.
            split: Of the corpus in a folder: train, dev or test.

        Raises:
            DataError: The documents can't be used, or have labels that the model doesn't know.
        """
        if isinstance(data, str | Path):
            return self._assessed(open_dataset(Path(data), known=self.labels), split)
        documents = documents_of(data)
        self._check_known(documents)
        with TemporaryDirectory(prefix="longtail-") as name:
            folder = Path(name)
            write_documents(folder / "test.jsonl", documents.texts, documents.labels)
            return self._assessed(open_dataset(folder, known=self.labels), _SPLIT)

    def _check_known(self, documents: Documents) -> None:
        """Refuse labels that the model lacks, each named once.

        Raises:
            DataError: There are some.
        """
        carried = dict.fromkeys(label for row in documents.labels for label in row)
        if unknown := [label for label in carried if not self.labels.knows(label)]:
            raise DataError(
                f"the documents have {len(unknown)} labels that the model lacks: "
                f"{', '.join(map(repr, unknown[:_MAX_SHOWN]))}; add them to the model "
                "('longtail registry add-label'), or leave them out"
            )

    def _assessed(self, dataset: Dataset, split: str) -> Assessment:
        manifest = self.bundle.manifest
        return assess(
            self.predictor,
            dataset,
            split,
            num_training_documents=manifest.training_document_count,
            reliability=True,
            thresholds=manifest.thresholds,
        )
