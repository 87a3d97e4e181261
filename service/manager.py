"""Which model versions are loaded, and how far loading has come.

What is served is one immutable `Serving` behind one reference, so that a later swap is one
assignment and a request keeps the model it began with.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from models.bundle import Bundle
from models.errors import BundleNotFoundError, ConfigError, LongtailError, NotReadyError
from models.manifest import TEXT
from models.registry import Registry

if TYPE_CHECKING:  # it brings PyTorch, which only a real model needs
    from models.predictor import Prediction

logger = logging.getLogger(__name__)


class Predictor(Protocol):
    """What the service asks of a loaded model; `models.predictor.Predictor` is the real one."""

    @property
    def scorers(self) -> tuple[str, ...]:
        """Names of the scorers that the bundle has."""
        ...

    @property
    def default_scorer(self) -> str:
        """The scorer that is used where none is named."""
        ...

    def predict(
        self,
        texts: Sequence[str],
        *,
        k: int = 5,
        scorer: str | None = None,
        threshold: float | None = None,
    ) -> list[Prediction]:
        """Return the best labels of each text."""
        ...


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A version that can answer."""

    version: int
    digest: str
    predictor: Predictor


@dataclass(frozen=True, slots=True)
class Serving:
    """All versions that can answer.

    Attributes:
        models: The loaded versions.
        default: The version for requests that name none.
        current: What the registry's alias pointed to at loading; None where it pointed nowhere.
    """

    models: Mapping[int, LoadedModel]
    default: int
    current: int | None


class ModelManager:
    """Loads the wanted versions in the background and hands out loaded models."""

    def __init__(
        self,
        registry: Registry,
        versions: Sequence[int | str],
        load: Callable[[Bundle], Predictor],
    ) -> None:
        self.registry = registry
        self._versions = tuple(versions)
        self._load = load
        self._loading: Future[Serving] | None = None
        self._stopping = threading.Event()
        self._loader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="loader")

    def start_loading(
        self,
        warm_up: Callable[[Predictor], object],
        then: Callable[[Serving], None],
    ) -> None:
        """Begin to load all wanted versions in a thread of their own; return at once.

        Args:
            warm_up: Makes a first prediction; a version that fails it is not served.
            then: Called in that thread once all versions can answer.
        """
        self._loading = self._loader.submit(self._load_all, warm_up, then)
        self._loading.add_done_callback(_log_failure)

    def close(self) -> None:
        """Begin no further load; one that has begun ends in the background."""
        self._stopping.set()
        self._loader.shutdown(wait=False, cancel_futures=True)

    def serving(self) -> Serving:
        """Return what is served now.

        Raises:
            NotReadyError: Loading has not ended, or it failed; the message says which and why.
        """
        if self._loading is None or not self._loading.done():
            raise NotReadyError("the models are still loading; try again soon")
        error = CancelledError() if self._loading.cancelled() else self._loading.exception()
        if error is not None:
            raise NotReadyError(_why_not_ready(error)) from error
        return self._loading.result()

    def get(self, version: int | str | None = None) -> LoadedModel:
        """Return the model of a version: a number, `current`, or None for the default.

        Raises:
            NotReadyError: Nothing is loaded yet.
            BundleNotFoundError: That version is not loaded; the message says which are.
        """
        serving = self.serving()
        number = self._number_of(version, serving)
        if number is not None and number in serving.models:
            return serving.models[number]
        loaded = ", ".join(str(n) for n in sorted(serving.models))
        if number not in self.registry.versions():
            raise BundleNotFoundError(
                f"version {version!r} is not in the registry; loaded versions: {loaded}; "
                "ask for one of these"
            )
        raise BundleNotFoundError(
            f"version {number} is in the registry but not loaded; loaded versions: {loaded}; "
            f"ask for one of these, or restart the service with --versions naming {number}"
        )

    @staticmethod
    def _number_of(version: int | str | None, serving: Serving) -> int | None:
        if version is None:
            return serving.default
        return version if isinstance(version, int) else serving.current

    def _load_all(
        self, warm_up: Callable[[Predictor], object], then: Callable[[Serving], None]
    ) -> Serving:
        numbers = [self.registry.resolve(version) for version in self._versions]
        models: dict[int, LoadedModel] = {}
        for number in dict.fromkeys(numbers):
            bundle = self.registry.open(number)
            _check_input(bundle)
            predictor = self._load(bundle)
            if self._stopping.is_set():
                raise CancelledError
            warm_up(predictor)
            models[number] = LoadedModel(number, bundle.manifest.digest, predictor)
            logger.info("loaded version=%d digest=%s", number, bundle.manifest.digest)
        serving = Serving(models, numbers[0], self.registry.current())
        then(serving)
        return serving


def _check_input(bundle: Bundle) -> None:
    """Refuse a model that reads no texts, which are all that requests bring.

    Raises:
        ConfigError: It is one.
    """
    if bundle.manifest.input != TEXT:
        raise ConfigError(
            f"version {bundle.folder.name} reads {bundle.manifest.input}, which requests don't "
            "bring; choose a version that was trained on texts, by --versions or with 'longtail "
            "registry activate'"
        )


def _why_not_ready(error: BaseException) -> str:
    """Return what an answer may tell; whatever we did not raise ourselves stays in the log."""
    if isinstance(error, CancelledError):
        return "the service is stopping; ask another instance"
    if isinstance(error, LongtailError):
        return f"loading the models failed: {error}; mend it and restart the service"
    name = type(error).__name__
    return f"loading the models failed with {name}; see the log, then restart the service"


def _log_failure(loading: Future[Serving]) -> None:
    error = None if loading.cancelled() else loading.exception()
    if isinstance(error, LongtailError):
        logger.error("loading failed: %s", error)  # says all there is to say
    elif error is not None and not isinstance(error, CancelledError):
        logger.error("loading failed", exc_info=error)
