"""Labels for Arrow record batches, for Spark, Ray Data, Daft, Dask, Beam, or a loop over files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from threading import RLock
from typing import Any, Unpack

from longtail.models.bundle.registry import CURRENT
from longtail.models.errors import BundleCorruptError, ConfigError, DataError
from longtail.models.extras import require
from longtail.models.interface.given_texts import joined
from longtail.models.interface.model import LoadedModel
from longtail.models.names import OnnxPrecision, Precision
from longtail.models.options import RankingKeywords, ranking_options
from longtail.models.parts.texts import fault_of
from longtail.models.predict.predictor import Predictor
from longtail.models.results import Prediction
from longtail.models.sharing.addresses import find_model

_TYPES_OF_TEXTS = frozenset({"string", "large_string", "string_view", "null"})
_LOCK = RLock()
"""Held by the one thread that loads models, or computes on a GPU."""


@dataclass(frozen=True, slots=True)
class ArrowPredictor:
    """Adds labels to record batches; made by `arrow_predictor`, and pickled as these attributes.

    Attributes:
        text: Columns of the text, joined in this order.
        id: The only column of the input that is kept; None: all are.
        options: Keyword arguments of `LoadedModel.predict`.
        version: Number of the model in its registry; None: it lies in none.
        digest: Of the model.
        load: Returns the model, which is loaded once per process.
    """

    text: tuple[str, ...]
    id: str | None
    options: Mapping[str, Any]
    version: int | None
    digest: str
    load: Callable[[], LoadedModel]

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield a `pyarrow.RecordBatch` with labels for each one given, row by row.

        Raises:
            DataError: A batch lacks a column, or has one of a type or name that it can't have.
            LongtailError: The model can't be loaded, or can't answer the options.
        """
        import pyarrow as pa

        for number, batch in enumerate(batches):
            schema = self.schema(batch.schema, f"batch {number}: ")
            added = pa.RecordBatch.from_pylist(self._rows_of(batch), pa.schema(_added_fields()))
            kept = map(batch.column, schema.names[: -added.num_columns])
            yield pa.RecordBatch.from_arrays([*kept, *added.columns], schema=schema)

    def table(self, table: Any) -> Any:
        """Return a `pyarrow.Table` with labels for each row of one; raises what a call raises."""
        import pyarrow as pa

        schema = self.schema(table.schema)
        return pa.Table.from_batches(self(table.to_batches()), schema=schema)

    def schema(self, given: Any, where: str = "") -> Any:
        """Return the `pyarrow.Schema` of the output for that of the input, or raise DataError."""
        import pyarrow as pa

        kept, added = given.names if self.id is None else [self.id], _added_fields()
        for name in (*self.text, *kept):
            if (count := given.names.count(name)) != 1:
                names = ", ".join(given.names)
                raise DataError(f"{where}{count} columns {name!r}, expected 1; there are: {names}")
        for field in map(given.field, self.text):
            if str(field.type) not in _TYPES_OF_TEXTS:
                found = f"{where}column {field.name!r} has the type {field.type}"
                raise DataError(f"{found}, expected string; cast it")
        if taken := {field.name for field in added}.intersection(kept):
            problem = f"{where}column {min(taken)!r} has the name of an added one"
            raise DataError(f"{problem}; rename it, or keep only one column (id)")
        return pa.schema([*map(given.field, kept), *added])

    def _rows_of(self, batch: Any) -> list[dict[str, Any]]:
        """Return the values of the added columns, where a row has them."""
        columns = [_values_of(batch.column(name)) for name in self.text]
        texts = [joined(cells) for cells in zip(*columns, strict=True)]
        faults = [fault_of(text) for text in texts]
        good = [text for text, fault in zip(texts, faults, strict=True) if fault is None]
        answers = map(_labels_of, self._predict(good) if good else ())
        where, model = ", ".join(self.text), {"version": self.version, "digest": self.digest}
        return [
            model | ({"error": f"column {where!r} {fault}"} if fault else next(answers))
            for fault in faults
        ]

    def _predict(self, texts: list[object]) -> Iterable[Prediction]:
        with _LOCK:
            model = self.load()
        with nullcontext() if model.predictor.device == "cpu" else _LOCK:
            return model.predict(texts, **self.options)


def arrow_predictor(
    model: str | Path = "registry",
    text: str | Sequence[str] = "text",
    id: str | None = None,  # noqa: A002  # as documents call it
    *,
    version: int | str = CURRENT,
    device: str | None = None,
    num_threads: int | None = 1,
    precision: Precision | OnnxPrecision = "float32",
    language: str | None = None,
    **options: Unpack[RankingKeywords],
) -> ArrowPredictor:
    """Return a function from Arrow record batches to record batches with labels, to be pickled.

    A text that can't be labelled gets nulls, and the reason in the column `error`.

    Args:
        model: As for `longtail.load`: a URI, or a path that all processes find.
        text: Column of the text, or several, joined in this order.
        id: The only column of the input to keep; None: all.
        version: Of a registry. "current" is looked up here, so that all processes use one model.
        device: "cpu" or "cuda"; None: a GPU if there is one.
        num_threads: Of each process (engines run one a core); None: one a core.
        precision: What the encoder computes in.
        language: Of the labels' names; None: the model's.
        **options: The fields of `RankingOptions`: k (5 by default), scorer, threshold, ...

    Raises:
        ConfigError: pyarrow is not installed, or the model has no such scorer or too few labels.
        RequestError: An option is not as it should be.
        BundleError: The model is not found, or is not whole.
    """
    require("parquet", "arrow_predictor")
    found = find_model(model, version)
    asked, known = ranking_options(options), found.manifest
    if asked.scorer not in {None, *known.scorers}:
        scorers = ", ".join(known.scorers)
        raise ConfigError(f"scorer is {asked.scorer!r}; expected one of the model's: {scorers}")
    if asked.k > known.label_count:
        raise ConfigError(f"k is {asked.k}; expected 1 to {known.label_count}, all labels")
    columns = (text,) if isinstance(text, str) else tuple(text)
    computing = (device, num_threads, precision)
    load = partial(_loaded, str(model), found.version, known.digest, *computing)
    told = {**options, "k": asked.k, "language": language}
    return ArrowPredictor(columns, id, told, found.version, known.digest, load)


@lru_cache(maxsize=4)
def _loaded(
    model: str, version: int | None, digest: str, device: str | None, num_threads: int | None,
    precision: Precision | OnnxPrecision,
) -> LoadedModel:  # fmt: skip
    bundle = find_model(model, version or CURRENT).open()
    if bundle.manifest.digest != digest:
        raise BundleCorruptError(
            f"model {model!r}: has the digest {bundle.manifest.digest} here and {digest} where the "
            "work began; give all machines the same one"
        )
    options: Any = {"device": device, "num_threads": num_threads, "precision": precision}
    return LoadedModel(bundle, Predictor.of_bundle(bundle, **options))


def _labels_of(prediction: Prediction) -> dict[str, Any]:
    labels, reason = prediction.labels, prediction.abstained_because
    remarks: list[str] = [each.code for each in prediction.warnings]
    remarks += ["truncated"] if prediction.truncated else []
    remarks += [f"abstained: {reason}"] if reason else []
    return {
        "label_ids": [label.id for label in labels],
        "label_names": [label.name for label in labels],
        "probabilities": [label.probability for label in labels],
        "scores": [label.score for label in labels],
        "accepted": [label.accepted for label in labels],
        "remarks": remarks,
    }


def _added_fields() -> list[Any]:
    import pyarrow as pa

    texts, numbers = pa.list_(pa.string()), pa.list_(pa.float64())
    types = {
        "label_ids": texts, "label_names": texts, "probabilities": numbers, "scores": numbers,
        "accepted": pa.list_(pa.bool_()), "remarks": texts, "error": pa.string(),
        "version": pa.int32(), "digest": pa.string(),
    }  # fmt: skip
    return list(map(pa.field, types.keys(), types.values()))


def _values_of(column: Any) -> list[Any]:
    raw = column.cast("large_binary").to_pylist()  # some writers do not check for UTF-8
    return [x if x is None else x.decode(errors="surrogateescape") for x in raw]
