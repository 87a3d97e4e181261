"""Swaps and drains model versions while requests are answered.

All of it happens on one thread, which alone changes what is served: what an operator commands
(`longtail.service.routes.admin`), and what the registry's alias `current` asks for when it has
moved.
"""

from __future__ import annotations

import gc
import logging
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from longtail.models.bundle.registry import CURRENT, Author, RegistryState
from longtail.models.errors import BundleCorruptError, BundleError, LongtailError, ignore
from longtail.models.predict.trial import WorkRunner
from longtail.service.errors import ChangeError
from longtail.service.process.compute_threads import (
    collect_cycles,
    lower_priority,
    return_free_memory,
)
from longtail.service.telemetry.metrics import ModelMetrics
from longtail.service.versions.changes import (
    Change,
    DrainingModel,
    ExponentialBackoff,
    LoaderThread,
    Policy,
    State,
)
from longtail.service.versions.loading import ModelLoader, RegistrySource, public_message
from longtail.service.versions.serving import Canary, ModelManager, ServedModel, Serving

logger = logging.getLogger(__name__)


class Redeployer:
    """Changes what a manager serves.

    Attributes:
        problem: Why the registry's `current` could not be followed, if so.
    """

    def __init__(
        self,
        manager: ModelManager,
        loader: ModelLoader,
        policy: Policy,
        source: RegistrySource | None = None,
    ) -> None:
        """Prepare; nothing is loaded before `start`."""
        self.problem: str | None = None
        self._manager = manager
        self._registry = loader.registry
        self._loader = loader
        self._policy = policy
        self._source = source
        self._thread = LoaderThread(self._look, policy.watch_interval_s)
        self._draining: Counter[int] = Counter()
        self._backoff = ExponentialBackoff()
        self._unfit: object = None  # what failed in place of another, and the registry then
        self._run: WorkRunner
        self._metrics: ModelMetrics

    def start(self, run: WorkRunner, metrics: ModelMetrics) -> Future[None]:
        """Begin to load the configured versions; return at once.

        Args:
            run: Does model work where all of it is done.
            metrics: Count every change.
        """
        self._run, self._metrics = run, metrics
        self._thread.start()
        return self._thread.submit(self._begin)

    def close(self) -> None:
        """Begin no further change; one that has begun ends in the background."""
        self._thread.stop()

    def load(self, version: int) -> Future[Change]:
        """Load a version beside the others, for requests that name it; it stays loaded."""
        return self._command("load", partial(self._keep, version))

    def complete(self, version: int) -> Future[None]:
        """Load the encoder of a version that answers without it, and what else needs it."""
        return self._thread.submit(self._complete, version)

    def unload(self, version: int) -> Future[Change]:
        """Unload a version that is neither the default, nor `current`, nor the canary."""
        return self._command("unload", partial(self._unload, version))

    def activate(self, version: int, author: Author | None = None) -> Future[Change]:
        """Answer all requests that name no version with this one; `current` names it then."""
        return self._command("activate", partial(self._activate, version, author))

    def rollback(self, author: Author | None = None) -> Future[Change]:
        """Go back to the version that `current` named before."""
        return self._command("rollback", partial(self._roll_back, author))

    def set_canary(self, canary: Canary | None) -> Future[Change]:
        """Give a version a share of the requests that name none; None ends that."""
        return self._command("canary", partial(self._set_canary, canary))

    def look(self) -> Future[None]:
        """Look at the registry now, and follow `current` if it has moved."""
        return self._thread.submit(self._look)

    def state_of(self, version: int) -> tuple[State, str | None]:
        """Return how far a version is, and why it could not be loaded, if so."""
        problem = self._loader.problems.get(version)
        if version == self._loader.loading:
            return "loading", problem
        served = self._manager.served
        if served is not None and version in served.models:
            return "loaded", problem
        if self._draining[version]:
            return "draining", problem
        return "failed" if problem else "not-loaded", problem

    # What follows runs on the loader thread.

    def _command(self, action: str, change: Callable[[], None]) -> Future[Change]:
        return self._thread.submit(self._execute, action, change)

    def _execute(self, action: str, change: Callable[[], None]) -> Change:
        started = time.monotonic()
        try:
            change()
        except LongtailError as error:
            self._metrics.count_change(action, "failed")
            logger.error("%s failed: %s", action, error)
            raise
        seconds = time.monotonic() - started
        serving = self._manager.serving()
        self._metrics.count_change(action, "done")
        logger.info(
            "%s done default=%d loaded=%s seconds=%.1f",
            action, serving.default, ",".join(map(str, sorted(serving.models))), seconds,
        )  # fmt: skip
        return Change(serving, seconds)

    def _begin(self) -> None:
        self._try_to("start", None, self._load_all)
        gc.freeze()  # the garbage collector skips what lives for long: see `collect_cycles`
        lower_priority()  # from now on there are requests to go behind

    def _look(self) -> None:
        """Follow `current` if it has moved, or load what could not be loaded at the start."""
        try:
            if self._source is not None:
                self._source.refresh()
            state = self._registry.state()
        except (LongtailError, OSError) as error:
            self._note_problem(public_message(error), error)
        else:
            self._follow(state)
        if any(self._draining.values()):
            collect_cycles()  # a failed request may have left a cycle that holds its model

    def _follow(self, state: RegistryState) -> None:
        target, served = state.current, self._manager.served
        if served is None:
            if self._backoff.is_over(target):
                self._try_to("start", target, self._load_all)
        elif target is None:
            self._note_problem(_without_current(self._registry.folder))
        elif CURRENT not in self._policy.versions or target == served.current:
            self._note_problem(None)
        elif (target, state) != self._unfit and self._backoff.is_over(target):
            del served  # it holds the model that may have to go first
            self._try_to("follow", target, partial(self._follow_to, target))

    def _follow_to(self, target: int) -> None:
        if self._policy.versions[0] == CURRENT:
            self._swap(target, default=target, current=target)
        else:
            self._swap(target, current=target)

    def _try_to(self, action: str, target: int | None, change: Callable[[], None]) -> None:
        """Do what nobody waits for, and remember why it failed."""
        try:
            self._execute(action, change)
        except CancelledError:
            return
        except LongtailError as error:
            self._backoff.note_failure(target)
            self._note_problem(str(error))
            if action == "start":
                then = "the service tries again" if self._policy.watch_interval_s else "restart it"
                self._manager.withdraw(f"loading the models failed: {error}; mend it, then {then}")
        else:
            self._backoff.note_success()

    def _load_all(self) -> None:
        if self._source is not None:
            self._source.refresh()
        models: dict[int, ServedModel] = {}
        numbers = {each: self._load_first(each, models) for each in self._policy.versions}
        fixed = frozenset(each for each in self._policy.versions if isinstance(each, int))
        named = self._registry.current()
        current = numbers.get(CURRENT, named)
        if current == named:
            self._note_problem(None)
        self._publish(Serving(models, numbers[self._policy.versions[0]], current, fixed))
        if self._policy.canary is not None:
            with suppress(LongtailError):  # it is logged, and the others can answer
                self._execute("canary", partial(self._set_canary, self._policy.canary))

    def _load_first(self, version: int | str, models: dict[int, ServedModel]) -> int:
        """Load a version at the start, and return its number; the last good one for `current`."""
        try:
            number = self._loader.number_of(version)
            models[number] = models.get(number) or self._load(number)
        except LongtailError as error:
            earlier = self._registry.state().history if version == CURRENT else ()
            for number in dict.fromkeys(reversed(earlier)):
                with suppress(LongtailError):
                    self._load_first(number, models)
                    self._note_problem(
                        f"{error}; version {number} answers, which was current before: mend "
                        "'current', or activate another version"
                    )
                    return number
            raise
        return number

    def _keep(self, number: int) -> None:
        kept = self._manager.serving().kept | {number}
        self._publish(self._manager.serving().changed(*self._new(number), kept=kept))

    def _unload(self, number: int) -> None:
        serving = self._manager.serving()
        self._manager.get(number)  # it is loaded, or we say which ones are
        after = serving.changed(kept=serving.kept - {number})
        if number in after.models:
            raise ChangeError(
                f"version {number} answers requests: it is the default, or 'current', or the "
                "canary; activate another version, or end the canary, before you unload it"
            )
        self._publish(after)

    def _activate(self, number: int, author: Author | None) -> None:
        move = partial(self._registry.activate, author=author)
        self._swap(number, move, default=number, current=number)

    def _roll_back(self, author: Author | None) -> None:
        try:
            number = self._registry.previous()
        except BundleError as error:
            raise ChangeError(str(error)) from error
        move = partial(self._registry.rollback, author=author)
        self._swap(number, lambda _: move(), default=number, current=number)

    def _set_canary(self, canary: Canary | None) -> None:
        added = self._new(canary.version) if canary else ()
        self._publish(self._manager.serving().changed(*added, canary=canary))

    def _new(self, number: int) -> Iterable[ServedModel]:
        serving = self._manager.serving()
        if number in serving.models:
            return ()
        return (self._load(number, serving.models[serving.default]),)

    def _load(self, number: int, before: ServedModel | None = None) -> ServedModel:
        if self._thread.is_stopped:
            raise CancelledError
        return self._loader.load(number, self._run, self._metrics, before)

    def _complete(self, number: int) -> None:
        model = self._manager.get(number)
        if model.predictor.left_out:  # else an earlier command has done it
            self._publish(self._manager.serving().changed(self._load(number, model)))

    def _swap(
        self, number: int, move_alias: Callable[[int], object] = ignore, **roles: int | None
    ) -> None:
        """Give a version the roles of another one, which is unloaded.

        Args:
            number: The version.
            move_alias: Tells the registry, once the version is fit to answer.
            roles: Fields of `Serving`.
        """
        serving = self._manager.serving()
        if serving.canary is not None and serving.canary.version == number:
            roles["canary"] = None
        kept = serving.changed(**roles)
        is_in_place = self._policy.swap_mode == "resource-preserving"
        if is_in_place and number not in kept.models and len(kept.models) < len(serving.models):
            del serving
            self._swap_in_place(number, move_alias, kept)
        else:
            new = self._new(number)
            self._tell(move_alias, number)
            self._publish(self._manager.serving().changed(*new, **roles))
        self._note_problem(None)

    def _swap_in_place(
        self, number: int, move_alias: Callable[[int], object], kept: Serving
    ) -> None:
        """Free versions that are not kept, and only then load one; nothing is served meanwhile."""
        self._loader.verify(number, self._metrics)  # what is damaged shall cost no pause
        state = self._registry.state()
        before = replace(self._manager.serving(), models=kept.models)
        draining = self._withdraw_all_but(
            kept, f"version {number} is being loaded in place of another one; try again soon"
        )
        try:
            self._await_release(draining)
            self._unfit = number, state  # to try again would cost another pause
            model = self._load(number)
            self._tell(move_alias, number)
        except (LongtailError, CancelledError):
            self._restore(before, draining)
            raise
        self._publish(kept.changed(model))

    def _withdraw_all_but(self, kept: Serving, why: str) -> list[DrainingModel]:
        """Serve nothing, and let all models go that are not kept."""
        models = self._manager.serving().models
        gone = [model for number, model in models.items() if number not in kept.models]
        self._manager.withdraw(why)
        draining = [DrainingModel(model) for model in gone]
        self._let_drain(gone)
        return draining

    def _await_release(self, draining: Sequence[DrainingModel]) -> None:
        """Wait until no request holds these models any more."""
        deadline = time.monotonic() + self._policy.drain_timeout_s
        for each in draining:
            if not each.wait(deadline):
                raise ChangeError(
                    f"requests still hold version {each.version} after "
                    f"{self._policy.drain_timeout_s:g} s, so that its memory can't be taken; try "
                    "again, or allow more time by LONGTAIL_SHUTDOWN_TIMEOUT_S"
                )

    def _restore(self, before: Serving, draining: Sequence[DrainingModel]) -> None:
        try:
            models = [each.model() or self._load(each.version) for each in draining]
        except LongtailError as error:
            self._manager.withdraw(
                f"neither the new model nor the old one could be loaded: {error}"
            )
            raise
        self._publish(before.changed(*models))

    def _publish(self, serving: Serving) -> None:
        before = self._manager.served
        self._manager.publish(serving)
        models = before.models.items() if before else ()
        self._let_drain([m for number, m in models if serving.models.get(number) is not m])

    def _let_drain(self, models: Sequence[ServedModel]) -> None:
        """Count models that are served no more until no request holds them."""
        for model in models:
            self._draining[model.version] += 1
            logger.info("draining version=%d", model.version)
            # Called wherever the last reference goes; all that it does is to send a task.
            when_freed = partial(self._thread.put, partial(self._note_freed, model.version))
            weakref.finalize(model.predictor, when_freed).atexit = False
        self._note_models()

    def _note_models(self) -> None:
        serving = self._manager.served
        loaded, shares = (serving.models, serving.shares) if serving else ((), {})
        self._metrics.set_models(loaded, shares, self._draining)

    def _note_freed(self, version: int) -> None:
        self._draining[version] -= 1
        logger.info("freed version=%d", version)
        return_free_memory()
        self._note_models()

    @staticmethod
    def _tell(move_alias: Callable[[int], object], number: int) -> None:
        try:
            move_alias(number)
        except OSError as error:
            raise ChangeError(
                f"the registry's 'current' can't be moved to version {number} ({error}); let the "
                "service write to the registry, or move it with 'longtail registry activate'"
            ) from error
        except BundleCorruptError as error:
            raise ChangeError(str(error)) from error

    def _note_problem(self, problem: str | None, error: Exception | None = None) -> None:
        if problem != self.problem:
            if problem is None:
                logger.info("the registry can be followed again")
            else:
                cause = None if isinstance(error, LongtailError) else error
                logger.error("the registry can't be followed: %s", problem, exc_info=cause)
        self.problem = problem
        self._metrics.set_registry_problem(problem is not None)


def _without_current(folder: Path) -> str:
    if not folder.is_dir():
        return f"registry {str(folder)!r} is not there any more; restore the folder, or mount it"
    return f"registry {str(folder)!r} names no current version"
