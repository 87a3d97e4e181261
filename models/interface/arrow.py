"""Labels for Arrow record batches, for Spark, Ray Data, Daft, Dask, Beam, or a loop over files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from functools import lru_cache, partial
from pathlib import Path
from threading import Lock
from typing import Any

from longtail.models.bundle.registry import CURRENT
from longtail.models.errors import BundleCorruptError, DataError
from longtail.models.extras import require
from longtail.models.interface.given_texts import joined
from longtail.models.interface.model import LoadedModel
from longtail.models.names import IndexName, Precision
from longtail.models.options import options_of
from longtail.models.parts.texts import fault_of
from longtail.models.results import Prediction
from longtail.models.sharing.transfer import find_model

_TEXT_TYPES = frozenset({"string", "large_string", "string_view", "null"})
MAX_TEXT_BYTES = 2**24
"""The most bytes of one text."""
_LOCK = Lock()  # held by the one thread that loads models, or computes on a GPU


class ArrowPredictor:
    """A function from Arrow record batches to batches with labels; its pickle has its arguments.

    Each process loads the model once. A text that can't be labelled gets nulls and an `error`.
    """

    def __init__(
        self,
        model: str | Path = "registry",
        text: str | Sequence[str] = "text",
        id: str | None = None,  # noqa: A002  # as documents call it
        *,
        version: int | str = CURRENT,
        device: str | None = None,
        num_threads: int | None = 1,
        precision: Precision = "float32",
        index: IndexName = "torch",
        **options: Any,
    ) -> None:
        """Find the model, and check the options.

        Args:
            model: As for `longtail.load`: a URI, or a path that all processes find.
            text: Column of the text, or several, joined in this order.
            id: The only column of the input to keep; None: all.
            version: Version in a registry. "current" is looked up here: all processes use one
                model.
            device: "cpu" or "cuda"; None: a GPU if there is one.
            num_threads: Threads of each process (engines run one a core); None: one a core.
            precision: What the encoder computes in.
            index: What searches label vectors (see `longtail.load`).
            **options: Those of `LoadedModel.predict`: k, scorer, threshold, language, ...

        Raises:
            ConfigError: pyarrow is not installed, or the model has no such scorer or fewer labels.
            RequestError: An option is not as it should be.
            BundleError: The model is not found, or is not whole.
        """
        require("parquet", "arrow_predictor")
        import pyarrow as pa

        found = find_model(model, version)
        given = {name: x for name, x in options.items() if name != "label_filter"}
        found.manifest.check_asked(options_of(given).scorer, options.get("k", 1))
        self.version, self.digest = found.version, found.manifest.digest
        computing = {
            "device": device, "num_threads": num_threads, "precision": precision, "index": index,
        }  # fmt: skip
        self._load = partial(_loaded, str(model), self.version, self.digest, **computing)
        self._text = (text,) if isinstance(text, str) else tuple(text)
        self._id = id
        self._options = options
        names, numbers = pa.list_(pa.string()), pa.list_(pa.float64())
        self._added = pa.schema({
            "label_ids": names, "label_names": names, "probabilities": numbers, "scores": numbers,
            "accepted": pa.list_(pa.bool_()), "remarks": names, "error": pa.string(),
            "version": pa.int32(), "digest": pa.string(),
        })  # fmt: skip

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield a `pyarrow.RecordBatch` with labels row by row; raises as `schema` does."""
        for number, batch in enumerate(batches):
            schema = self.schema(batch.schema, f"batch {number}: ")
            kept = map(batch.column, schema.names[: -len(self._added)])
            added = batch.from_pylist(self._rows_of(batch), self._added)
            yield batch.from_arrays([*kept, *added.columns], schema=schema)

    def table(self, table: Any) -> Any:
        """Return a `pyarrow.Table` with labels for each row of a table; raises as a call does."""
        return table.from_batches(self(table.to_batches()), self.schema(table.schema))

    def schema(self, given: Any, where: str = "") -> Any:
        """Return the `pyarrow.Schema` of the output for that of the input, or raise DataError."""
        import pyarrow as pa

        kept = given.names if self._id is None else [self._id]
        for name in (*self._text, *kept):
            if given.names.count(name) != 1:
                raise DataError(f"{where}expected 1 column {name!r}, got {', '.join(given.names)}")
            if name in self._text and str(found := given.field(name).type) not in _TEXT_TYPES:
                raise DataError(f"{where}column {name!r} is of type {found}; cast it to string")
            if name in kept and name in self._added.names:
                raise DataError(f"{where}column {name!r} is added; rename yours, or keep one (id)")
        return pa.schema([*map(given.field, kept), *self._added])

    def _rows_of(self, batch: Any) -> list[dict[str, Any]]:
        """Return the values of the added columns, where a row has them."""
        # As bytes: some writers do not check for UTF-8.
        columns = [batch.column(name).cast("large_binary").to_pylist() for name in self._text]
        texts: list[Any] = []
        faults: list[str | None] = []
        for cells in zip(*columns, strict=True):
            size = sum(len(x or b"") for x in cells)
            kept = cells if size <= MAX_TEXT_BYTES else ()
            texts.append(joined(tuple((x or b"").decode(errors="surrogateescape") for x in kept)))
            long = f"has {size} bytes, expected at most {MAX_TEXT_BYTES}; divide it"
            faults.append(fault_of(texts[-1]) if kept else long)
        good = [text for text, fault in zip(texts, faults, strict=True) if fault is None]
        with _LOCK:
            model = self._load()
        with nullcontext() if model.predictor.device == "cpu" else _LOCK:
            answers = map(_labels_of, model.predict(good, **self._options))
        own = {"version": self.version, "digest": self.digest}
        return [own | ({"error": f"text {fault}"} if fault else next(answers)) for fault in faults]


arrow_predictor = ArrowPredictor


@lru_cache(maxsize=4)
def _loaded(model: str, version: int | None, digest: str, **computing: Any) -> LoadedModel:
    bundle = find_model(model, version or CURRENT).open()
    if (found := bundle.manifest.digest) != digest:
        told = f"model {model!r}: has the digest {found} here and {digest} where the work began"
        raise BundleCorruptError(f"{told}; give all machines the same one")
    return LoadedModel(bundle, **computing)


def _labels_of(prediction: Prediction) -> dict[str, Any]:
    remarks: list[str] = [each.code for each in prediction.warnings]
    remarks += ["truncated"] if prediction.truncated else []
    remarks += [f"abstained: {why}"] if (why := prediction.abstained_because) else []
    return {
        "label_ids": [label.id for label in prediction],
        "label_names": [label.name for label in prediction],
        "probabilities": [label.probability for label in prediction],
        "scores": [label.score for label in prediction],
        "accepted": [label.accepted for label in prediction],
        "remarks": remarks,
    }
