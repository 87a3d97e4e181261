"""Which model versions can answer, and which of them answers a request.

What is served is one immutable `Serving` behind one reference, so that a swap is one assignment
and a request keeps the model it began with. `longtail.service.versions.redeploy` makes the swaps.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from longtail.models.bundle.registry import Registry
from longtail.models.errors import BundleNotFoundError, NotReadyError
from longtail.models.predict.predictor import Predictor

_LOADING = "the models are still loading; try again soon"
_STOPPING = "the service is stopping; ask another instance"
_GOLDEN_RATIO = 0.6180339887498949
"""Its multiples, modulo 1, fill [0, 1) evenly, and so do every second of them, every third, ..."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A version that can answer.

    Attributes:
        version: Its number.
        digest: Digest of its bundle.
        predictor: That answers.
        example: The first warm-up text that its bundle brings along; None: it brings none.
        languages: Languages of its training documents, where these were recognised.
    """

    version: int
    digest: str
    predictor: Predictor
    example: str | None = None
    languages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Canary:
    """A version that gets a share, from 0 to 1, of the requests that name no version."""

    version: int
    share: float


@dataclass(frozen=True, slots=True)
class Serving:
    """All versions that can answer.

    Attributes:
        models: The loaded versions.
        default: The version for requests that name none.
        current: The version for requests that name `current`: what the registry's alias pointed to
            when it was last followed; None where it pointed nowhere.
        kept: Versions that stay loaded when another one takes their place.
        canary: Who else gets requests that name no version.
    """

    models: Mapping[int, ServedModel]
    default: int
    current: int | None
    kept: frozenset[int] = frozenset()
    canary: Canary | None = None

    @property
    def expected(self) -> frozenset[int]:
        """The versions that must be loaded."""
        canary = self.canary.version if self.canary else None
        return self.kept | {each for each in (self.default, self.current, canary) if each}

    @property
    def shares(self) -> dict[int, float]:
        """Share of the requests naming no version that each version gets."""
        if self.canary is None:
            return {self.default: 1.0}
        return {self.default: 1.0 - self.canary.share, self.canary.version: self.canary.share}

    def number_of(self, version: int | str | None) -> int | None:
        """Return the number that a request means: its own, that of `current`, or the default's."""
        if isinstance(version, int):
            return version
        return self.default if version is None else self.current

    def changed(self, *added: ServedModel, **changes: Any) -> Serving:
        """Return a copy with models added and fields replaced, without models nothing refers to."""
        serving = replace(self, **changes)
        models = {**self.models, **{model.version: model for model in added}}
        expected = serving.expected
        return replace(
            serving, models={number: m for number, m in models.items() if number in expected}
        )


class ModelManager:
    """Holds the served versions and hands out the model that answers a request."""

    def __init__(self, registry: Registry) -> None:
        """Serve nothing yet."""
        self.registry = registry
        self._serving: Serving | None = None
        self._why_not = _LOADING
        self._is_draining = False
        self._turns = itertools.count(1)

    @property
    def served(self) -> Serving | None:
        """What is served now, if anything is."""
        return self._serving

    def publish(self, serving: Serving) -> None:
        """Serve this from now on; requests in flight keep the model that they have."""
        self._serving = serving

    def withdraw(self, why: str) -> None:
        """Serve nothing from now on, for this reason."""
        self._why_not = why
        self._serving = None

    def drain(self) -> None:
        """Report not ready, so that no new requests are sent here; arriving ones are answered."""
        self._is_draining = True

    def serving(self) -> Serving:
        """Return the versions served now."""
        serving = self._serving
        if serving is None:
            raise NotReadyError(self._why_not)
        return serving

    def check_ready(self) -> None:
        """Do nothing if requests should be sent here."""
        if self._is_draining:
            raise NotReadyError(_STOPPING)
        self.serving()

    def get(self, version: int | str | None = None) -> ServedModel:
        """Return the model of a version: a number, `current`, or None for the default.

        The canary is returned only where it is named: label look-ups and feedback without a
        version always refer to the same catalogue.
        """
        return self._get(version, self.serving())

    def get_to_predict(self, version: int | str | None = None) -> ServedModel:
        """Return the model that is to label a text, as `get` does but for the canary.

        The canary has its share of the calls that name no version: always of the same ones.
        """
        serving = self.serving()
        canary = serving.canary
        if version is None and canary is not None:
            turn = next(self._turns) * _GOLDEN_RATIO % 1
            return serving.models[canary.version if turn < canary.share else serving.default]
        return self._get(version, serving)

    def _get(self, version: int | str | None, serving: Serving) -> ServedModel:
        number = serving.number_of(version)
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
            f"ask for one of these, or load it: POST /v1/admin/models/{number}/load, or restart "
            f"the service with --versions naming {number}"
        )
