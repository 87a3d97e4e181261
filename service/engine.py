"""Text to labels, for whatever face asks; knows no HTTP.

All model work runs on one compute thread, which owns the compute libraries (GPU indexes are not
thread-safe even for reads, and every thread that computes gets a thread pool of its own).
Admission goes in front of `Engine.predict`'s submission and batching behind it, in `_compute`;
neither changes what callers see.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from models.errors import LongtailError, RequestError
from service.manager import LoadedModel, ModelManager, Predictor

if TYPE_CHECKING:  # it brings PyTorch, which only a real model needs
    from models.predictor import Prediction

WARM_UP_TEXT = "A first text, which makes the compute libraries allocate what they need."


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that one query may ask for; see `service.settings.Settings`."""

    max_texts: int
    max_text_characters: int
    max_k: int


@dataclass(frozen=True, slots=True)
class Query:
    """Texts, and what to answer about each."""

    texts: Sequence[str]
    k: int = 5
    scorer: str | None = None
    threshold: float | None = None
    version: int | str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The labels of each text, and who found them in what time."""

    model: LoadedModel
    scorer: str
    predictions: list[Prediction]
    compute_s: float


class Engine:
    """Answers queries with the models of a manager."""

    def __init__(self, manager: ModelManager, limits: Limits) -> None:
        self._manager = manager
        self._limits = limits
        self._compute_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="compute")

    async def predict(self, query: Query) -> Answer:
        """Return the best labels of each text, in order.

        Raises:
            RequestError: The query breaks a limit, or asks for what the model can't do.
            BundleNotFoundError: The version is not loaded.
            NotReadyError: No model is loaded yet.
        """
        _check(query, self._limits)
        model = self._manager.get(query.version)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._compute_thread, _compute, model, query)

    def warm_up(self, predictor: Predictor) -> None:
        """Make one prediction on the compute thread and wait for it; not for the event loop."""
        self._compute_thread.submit(predictor.predict, [WARM_UP_TEXT], k=1).result()

    def close(self) -> None:
        """Drop what has not begun, and wait for what has."""
        self._compute_thread.shutdown(wait=True, cancel_futures=True)


def _check(query: Query, limits: Limits) -> None:
    if not 1 <= len(query.texts) <= limits.max_texts:
        raise RequestError(
            f"the request has {len(query.texts)} texts; wanted 1 to {limits.max_texts}; "
            "send the others in further requests"
        )
    for index, text in enumerate(query.texts):
        if len(text) > limits.max_text_characters:
            raise RequestError(
                f"text {index} has {len(text)} characters; wanted at most "
                f"{limits.max_text_characters}; shorten it"
            )
    if not 1 <= query.k <= limits.max_k:
        raise RequestError(f"k is {query.k}; wanted 1 to {limits.max_k}")


def _compute(model: LoadedModel, query: Query) -> Answer:
    started = time.perf_counter()
    predictions = model.predictor.predict(
        query.texts, k=query.k, scorer=query.scorer, threshold=query.threshold
    )
    scorer = model.predictor.default_scorer if query.scorer is None else query.scorer
    _check_finite(predictions, model.version, scorer)
    return Answer(model, scorer, predictions, time.perf_counter() - started)


def _check_finite(predictions: Sequence[Prediction], version: int, scorer: str) -> None:
    for prediction in predictions:
        for label in prediction.labels:
            if not math.isfinite(label.score) or not math.isfinite(label.probability or 0):
                raise LongtailError(
                    f"version {version}, scorer {scorer!r}: label {label.id!r} got the score "
                    f"{label.score!r}; the model is damaged or numerically unstable: retrain it, "
                    "or roll back with 'longtail registry rollback'"
                )
