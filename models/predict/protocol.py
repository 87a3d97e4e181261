"""What is asked of a loaded model, without PyTorch, so that a test can stand in for one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar, Unpack, runtime_checkable

from longtail.models.labels.catalogue import LabelCatalogue
from longtail.models.labels.search import LabelSearch
from longtail.models.labels.selection import LabelSelector
from longtail.models.options import RankingKeywords, RankingOptions
from longtail.models.results import LabelDetails, Prediction
from longtail.models.scorers.promises import Promise

T = TypeVar("T")


@runtime_checkable  # the test run checks annotations by isinstance
class PreparedTexts(Protocol):
    """Texts that a model has made ready, such as `longtail.models.parts.batches.TextBatch`."""

    def take(self: T, rows: Sequence[int]) -> T:
        """Return some of the texts, with all that is known of them."""
        ...

    @classmethod
    def joined(cls: type[T], batches: Sequence[T]) -> T:
        """Return the texts of several batches of one model."""
        ...


@runtime_checkable
class Predictor(Protocol):
    """A loaded model, such as `longtail.models.predict.predictor.Predictor`."""

    @property
    def catalogue(self) -> LabelCatalogue:
        """All labels."""
        ...

    @property
    def selector(self) -> LabelSelector:
        """Finds the labels that filters name."""
        ...

    @property
    def label_search(self) -> LabelSearch:
        """Finds labels by words; made when first asked for, which takes seconds."""
        ...

    @property
    def scorers(self) -> tuple[str, ...]:
        """Names of the scorers."""
        ...

    @property
    def promises(self) -> tuple[Promise, ...]:
        """The promises by which labels are accepted; the first one of a scorer is its default."""
        ...

    @property
    def default_scorer(self) -> str:
        """The scorer that is used where a query names none."""
        ...

    @property
    def max_tokens(self) -> int | None:
        """Tokens that the encoder reads of a text; None where there is no encoder."""
        ...

    @property
    def device(self) -> str:
        """Where it computes: "cpu" or "cuda"."""
        ...

    @property
    def encoder_precision(self) -> str | None:
        """What the encoder computes in; None where there is no encoder."""
        ...

    @property
    def batch_tokens(self) -> int:
        """Tokens, padding included, beyond which larger batches are hardly faster."""
        ...

    @property
    def padding_cost(self) -> float:
        """What a token of padding costs, in tokens of text."""
        ...

    def needs_encoder(self, scorer: str) -> bool:
        """Whether a scorer reads texts by the encoder."""
        ...

    def read(self, texts: Sequence[str]) -> Any:
        """Return texts made ready, as `PreparedTexts`; they are tokenised later, by `prepare`."""
        ...

    def prepare(self, batch: Any, scorer: str | None = None) -> list[int]:
        """Tokenise texts for a scorer; return how many tokens it will read of each."""
        ...

    def encode(self, batch: Any) -> None:
        """Make the vectors of texts."""
        ...

    def predict_batch(self, batch: Any, options: RankingOptions) -> list[Prediction]:
        """Return the best labels of texts made ready."""
        ...

    def predict(self, texts: Sequence[str], **options: Unpack[RankingKeywords]) -> list[Prediction]:
        """Return the best labels of each text."""
        ...

    def describe(self, label: int) -> LabelDetails:
        """Return all that is known of a label, by its row in the catalogue."""
        ...
