"""From a version's number to a model that is fit to answer, or the reason why not.

Versions may come from a registry behind any fsspec URI; the folder of the service's own registry is
then a copy of it, version by version as they are asked for.

A model that was just loaded answers known texts first, a few at a time, on a thread of its own with
a time limit, which is looked at in between.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Self, TypeVar

from longtail.models.bundle.bundle import Bundle, MapArrays, read_manifest
from longtail.models.bundle.registry import CURRENT, STATE_NAME, Registry, RegistryState
from longtail.models.bundle.trained_on import read_probes
from longtail.models.errors import BundleNotFoundError, LongtailError, ignore
from longtail.models.files.durable import write_json_durably
from longtail.models.kinds.storage import mapped_bytes, without_encoder
from longtail.models.parts.model_parts import gpu_bytes
from longtail.models.predict.predictor import Predictor
from longtail.models.predict.trial import (
    WorkRunner,
    best_labels,
    try_out,
    warmup_texts_of,
)
from longtail.models.sharing.places import Place
from longtail.models.sharing.transfer import fetch, read_state
from longtail.service.errors import ChangeError
from longtail.service.process.compute_threads import available_bytes, available_gpu_bytes
from longtail.service.telemetry.metrics import ModelMetrics
from longtail.service.versions.serving import ServedModel

logger = logging.getLogger(__name__)


class RegistrySource:
    """Copies versions and the alias `current` from a registry elsewhere."""

    def __init__(self, uri: str, registry: Registry) -> None:
        """Name both.

        Args:
            uri: URI of a registry's folder, such as "s3://bucket/registry" or
                "file:///mnt/registry".
            registry: Where the copies go; nobody else publishes there.
        """
        self._place = Place(uri)
        self._registry = registry
        self._seen: RegistryState | None = None

    def refresh(self) -> None:
        """Take over the alias and its history, if they have changed."""
        state = read_state(self._place)
        if state == self._seen:
            return
        with self._place.reaching():
            self._registry.folder.mkdir(parents=True, exist_ok=True)
            write_json_durably(self._registry.folder / STATE_NAME, asdict(state))
        self._seen = state

    def fetch(self, number: int) -> None:
        """Copy a version, unless it is here; it appears whole or not at all."""
        folder = self._registry.folder / str(number)
        if folder.is_dir():
            return
        fetch(self._place, folder, f"{number}/")
        logger.info("fetched version=%d from %s", number, self._place.uri)


def overlap(ones: Sequence[frozenset[str]], others: Sequence[frozenset[str]]) -> float:
    """Return the share, from 0 to 1, of labels that two models have in common, over some texts."""
    common = sum(len(one & other) for one, other in zip(ones, others, strict=True))
    total = sum(max(len(one), len(other)) for one, other in zip(ones, others, strict=True))
    return common / total if total else 1.0


T = TypeVar("T")
_BYTES_A_LABEL = 400
"""Memory that a label takes beyond the bytes of its line."""


class TrialThread:
    """Does what it is given in order, apart from the threads that answer requests.

    Python can't end a thread: work that goes on after the time limit keeps a processor busy at low
    priority until it ends, but no request waits for it, and its model never answers.
    """

    def __init__(self, prepare: Callable[[], object], timeout_s: float) -> None:
        """Start it; the time runs from now on."""
        self._timeout_s = timeout_s
        self._deadline = time.monotonic() + timeout_s
        self._works: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        # A daemon, so that it keeps no process alive.
        Thread(target=_run, args=(prepare, self._works), name="warm-up", daemon=True).start()

    def __call__(self, work: Callable[[], T], /) -> T:
        """Return what some work returns, or raise what it raises."""
        future: Future[T] = Future()
        self._works.put(partial(_complete, future, work))
        try:
            return future.result(max(0.0, self._deadline - time.monotonic()))
        except TimeoutError as error:
            if future.done():
                raise  # of the work itself
            raise ChangeError(
                f"its first predictions took more than {self._timeout_s:g} s; use a smaller model "
                "or more processors"
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Let the thread end after what it is doing."""
        self._works.put(None)


def _run(prepare: Callable[[], object], works: SimpleQueue[Callable[[], object] | None]) -> None:
    prepare()
    while _do_next(works):
        pass


def _do_next(works: SimpleQueue[Callable[[], object] | None]) -> bool:
    """Do the next task; return whether there was one.

    A function of its own, so that the thread holds no model while it waits.
    """
    work = works.get()
    if work is None:
        return False
    work()
    return True


def _complete(future: Future[T], work: Callable[[], T]) -> None:
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001  # the caller gets it
        future.set_exception(error)


class ModelLoader:
    """Fetches, verifies, loads, warms and compares models, one at a time.

    Attributes:
        loading: The version that is being loaded.
        problems: Why the last load of a version failed, if it did.
    """

    def __init__(
        self,
        registry: Registry,
        load: Callable[[Bundle], Predictor],
        *,
        source: RegistrySource | None = None,
        memory_factor: float = 0.0,
        map_arrays: MapArrays = "auto",
        preload: bool = False,
        warmup_timeout_s: float = 600.0,
        prepare_thread: Callable[[], object] = ignore,
        available: Callable[[], int | None] = available_bytes,
        available_gpu: Callable[[], int | None] = available_gpu_bytes,
    ) -> None:
        """Prepare.

        Args:
            registry: Has the versions.
            load: Makes a verified bundle into a model that can answer.
            source: Where versions come from that the registry does not have yet.
            memory_factor: Memory that a model needs, as a multiple of its files; 0: not checked.
            map_arrays: Whether arrays may stay in their files (see `is_mapped` in `bundle.py`).
            preload: Whether an encoder that the default scorer does not need is loaded, too.
            warmup_timeout_s: For the first predictions of a model, in seconds.
            prepare_thread: Called first of all on the thread that makes them.
            available: Says how much memory there is; None: it can't tell.
            available_gpu: Says how much memory of the GPU there is; None: models are on none.
        """
        self.registry = registry
        self.loading: int | None = None
        self.problems: dict[int, str] = {}
        self._load = load
        self._source = source
        self._memory_factor = memory_factor
        self._map_arrays = map_arrays
        self._preload = preload
        self._warmup_timeout_s = warmup_timeout_s
        self._prepare_thread = prepare_thread
        self._available = available
        self._available_gpu = available_gpu

    def number_of(self, version: int | str) -> int:
        """Return the number of a version given as a number or as "current"."""
        if self._source is not None:
            number = self.registry.current() if version == CURRENT else version
            if isinstance(number, int):
                self._source.fetch(number)
        return self.registry.resolve(version)

    def load(
        self,
        number: int,
        run: WorkRunner,
        metrics: ModelMetrics,
        before: ServedModel | None = None,
    ) -> ServedModel:
        """Return a model that has answered its first queries.

        Args:
            number: Its version.
            run: Does work of the model that it replaces.
            metrics: Count how it went.
            before: The one that it replaces; how far their labels agree is reported. In place of
                itself, a version is loaded with an encoder that its default scorer does not need.
        """
        started = time.monotonic()
        with self._noted(number, metrics):
            self._check_memory(number)
            bundle = self._open(number)
            is_whole = self._preload or (before is not None and before.version == number)
            predictor = self._load(bundle if is_whole else without_encoder(bundle))
            if before is not None:
                predictor.prepare_label_search()  # here, so that nobody waits for it
            texts = warmup_texts_of(bundle)
            with TrialThread(self._prepare_thread, self._warmup_timeout_s) as thread:
                try_out(predictor, thread, texts)
                ones = [] if before is None else best_labels(predictor, thread, texts)
            if before is not None:
                others = best_labels(before.predictor, run, texts)
                share = overlap(ones, others)
                metrics.set_overlap(number, share)
                logger.info(
                    "compared version=%d with version=%d: %.0f%% of the best labels of %d texts "
                    "are the same", number, before.version, 100 * share, len(texts),
                )  # fmt: skip
        digest, seconds = bundle.manifest.digest, time.monotonic() - started
        metrics.observe_load("loaded", seconds)
        if before is None:  # the first model answers texts first
            Thread(target=predictor.prepare_label_search, daemon=True).start()
        logger.info("loaded version=%d digest=%s seconds=%.1f", number, digest, seconds)
        example = next(iter(read_probes(bundle)), None)
        languages = tuple(bundle.manifest.training.get("languages") or ())
        return ServedModel(number, digest, predictor, example, languages)

    def verify(self, number: int, metrics: ModelMetrics) -> None:
        """Fetch a version if necessary, and read every byte of it."""
        with self._noted(number, metrics):
            self._open(number)

    def _open(self, number: int) -> Bundle:
        return replace(self.registry.open(number), map_arrays=self._map_arrays)

    def _check_memory(self, number: int) -> None:
        """Refuse a version that memory can't hold, by its manifest: before its labels are read."""
        folder = self.registry.folder_of(number)
        manifest, mapped = read_manifest(folder), 0
        with suppress(FileNotFoundError):  # `_open` says which file is missing
            mapped = mapped_bytes(folder, manifest, self._map_arrays)  # slow without memory for it
        copied = sum(info.size_bytes for info in manifest.files.values()) - mapped
        needed = self._memory_factor * copied + mapped + _BYTES_A_LABEL * manifest.label_count
        available = self._available() if self._memory_factor else None
        if available is not None and needed > available:
            raise ChangeError(
                f"it needs about {needed / 2**20:.0f} MiB of memory ({self._memory_factor:g} times "
                f"its files, mapped arrays once, and its labels), and {available / 2**20:.0f} MiB "
                "are free; unload a version, or give the service more memory, or set "
                "LONGTAIL_SWAP_MODE=resource-preserving or another LONGTAIL_MEMORY_FACTOR"
            )
        of_gpu = gpu_bytes(manifest)
        asks = self._memory_factor and of_gpu  # to ask for the GPU's imports PyTorch
        available = self._available_gpu() if asks else None
        if available is not None and of_gpu > available:
            raise ChangeError(
                f"it needs about {of_gpu / 2**20:.0f} MiB of the GPU's memory, and "
                f"{available / 2**20:.0f} MiB are free; unload a version, or use a larger GPU, or "
                "set LONGTAIL_SWAP_MODE=resource-preserving, or LONGTAIL_MEMORY_FACTOR=0 to check "
                "nothing"
            )

    @contextmanager
    def _noted(self, number: int, metrics: ModelMetrics) -> Iterator[None]:
        """Fetch a version; tell how a load goes, and turn what it raises into what may be said."""
        started = time.monotonic()
        self.loading = number
        try:
            if self._source is not None:
                self._source.fetch(number)
            yield
        except CancelledError:
            raise
        except BaseException as error:
            metrics.observe_load("failed", time.monotonic() - started)
            why = public_message(error)
            self.problems[number] = why
            if isinstance(error, LongtailError):
                logger.error("loading version=%d failed: %s", number, why)
            else:
                logger.exception("loading version=%d failed", number)
            if isinstance(error, BundleNotFoundError):
                raise
            raise ChangeError(f"version {number} can't be loaded: {why}") from error
        else:
            self.problems.pop(number, None)
        finally:
            self.loading = None


def public_message(error: BaseException) -> str:
    """Return the text of an error for an answer; errors of other packages stay in the log."""
    if isinstance(error, LongtailError):
        return str(error)
    if type(error).__name__ == "OutOfMemoryError":  # PyTorch's, which may not be installed
        return (
            f"the GPU's memory is too small ({str(error).splitlines()[0][:200]}); unload a "
            "version, or use a larger GPU, or set LONGTAIL_SWAP_MODE=resource-preserving"
        )
    number = error.errno if isinstance(error, OSError) else None
    reason = f" ({os.strerror(number)})" if number else ""
    return f"failed with {type(error).__name__}{reason}; see the log"
