"""A loaded model that can also be measured, where training is installed."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from longtail.models.errors import LongtailError
from longtail.models.interface.model import LoadedModel

if TYPE_CHECKING:
    from longtail.training.assessment.assess import Assessment


class Model(LoadedModel):
    """A trained model, loaded. Not thread-safe on a GPU: let one thread own it."""

    def evaluate(self, data: Any, split: str = "test") -> Assessment:
        """Measure every scorer; imports `longtail.training`.

        Args:
            data: Folder of a corpus; or documents: a data frame with the columns `text` and
                `labels`, or with those that the model was trained on, or a pair of texts and lists
                of labels. Documents that the model was trained on are left out; labels that it
                lacks count as missed.
            split: Split of the corpus in a folder: train, dev or test. Documents are all measured.

        Raises:
            LongtailError: `longtail.training` is not installed, as in the image of the service.
            DataError: The documents can't be used; the model has none of their labels; or it was
                trained on most of them.
        """
        if find_spec("longtail.training") is None:
            raise LongtailError(
                "evaluate: this installation has no longtail.training; evaluate where models are "
                "trained (pip install longtail)"
            )
        from longtail.training.estimators.model import evaluated

        return evaluated(self, data, split)
