"""What waits to be computed: the texts of a query as a job, and each of them as an item."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from longtail.models.options import RankingOptions
from longtail.models.parts.batches import TextBatch
from longtail.models.results import Prediction
from longtail.service.engine.admission import Priority, estimate_tokens
from longtail.service.versions.serving import ServedModel

EXPLANATION_TOKENS = 16
"""Tokens of text that take about as long as the explanation of a label."""


def extra_tokens(options: RankingOptions) -> int:
    """Return what has to be done for a text besides reading it, in tokens that take as long."""
    return EXPLANATION_TOKENS * options.k if options.explain else 0


@dataclass(slots=True)
class Seconds:
    """Where the time of a job went.

    Attributes:
        queue: Until the first of its texts was computed; tokenising is part of it.
        compute: Of the batches that its texts were in, which may have held others' too.
        phases: When each phase began first and ended last, by `time.perf_counter`.
    """

    queue: float = 0.0
    compute: float = 0.0
    phases: dict[str, tuple[float, float]] = field(default_factory=dict)

    def note(self, phase: str, started: float, ended: float) -> None:
        """Take when a phase began and ended; several pieces of it make one."""
        first, _ = self.phases.get(phase, (started, ended))
        self.phases[phase] = first, ended


@dataclass(slots=True, eq=False)
class Job:
    """Texts of one query.

    Attributes:
        model: Who is to answer.
        texts: What about.
        options: What to answer; they name the scorer.
        priority: Who goes first.
        on_done: Called once, on whatever thread, when there are answers or an error.
        predictions: The answers so far, by the number of the text.
        error: Why there are none.
        seconds: Where its time went.
        added_at: When it began to wait, by `time.perf_counter`.
        deadline: When the query waits no longer, by the same clock.
        urgency: What waiting jobs and texts are ordered by, the least first: its time limit behind
            its turn (see `Admission.admit`). So clients take turns, however much each asks for.
        is_over: Whether nobody waits for it any more.
        items: Its texts, once they are ready.
        needs_encoder: Whether its scorer reads texts by the encoder, so that they are tokenised
            before they wait to be computed.
    """

    model: ServedModel
    texts: Sequence[str]
    options: RankingOptions
    priority: Priority
    on_done: Callable[[Job], None]
    predictions: dict[int, Prediction] = field(default_factory=dict)
    error: Exception | None = None
    seconds: Seconds = field(default_factory=Seconds)
    added_at: float = field(default_factory=time.perf_counter)
    deadline: float = math.inf
    urgency: float = math.inf
    is_over: bool = False
    items: Sequence[Item] = ()
    needs_encoder: bool = field(init=False)

    def __post_init__(self) -> None:
        """Ask the model once."""
        self.needs_encoder = self.model.predictor.scorers.needs_encoder(self.scorer)

    @property
    def scorer(self) -> str:
        """Who scores the labels."""
        assert self.options.scorer is not None
        return self.options.scorer

    def answer(self, number: int, prediction: Prediction) -> None:
        """Take the answer about one text."""
        self.predictions[number] = prediction
        if len(self.predictions) == len(self.texts):
            self.is_over = True
            self.on_done(self)

    def fail(self, error: Exception) -> None:
        """Take an error for the whole job."""
        if not self.is_over:
            self.error = error
            self.is_over = True
            self.on_done(self)


@dataclass(slots=True, eq=False, weakref_slot=True)
class Item:
    """A text that is ready to be computed.

    Attributes:
        job: Whose it is.
        number: Its number there.
        batch: The text alone, tokenised; None where the scorer needs no encoder.
        tokens: That have to be read of it, and what else there is to do for it; at least 1, so that
            texts without a known token are computed together, and not all at once.
    """

    job: Job
    number: int
    batch: TextBatch | None
    tokens: int

    @property
    def kind(self) -> tuple[int, bool]:
        """What texts must have in common to be computed together."""
        return id(self.job.model.predictor), self.job.needs_encoder


@dataclass(frozen=True, slots=True)
class ThreadCall:
    """Something else that the first compute thread is to do."""

    function: Callable[[], object]
    future: Future[None] = field(default_factory=Future)

    def run(self) -> None:
        """Do it, and say how it ended."""
        try:
            self.function()
        except BaseException as error:  # noqa: BLE001  # it is the caller's
            self.future.set_exception(error)
        else:
            self.future.set_result(None)


def untokenised(job: Job) -> list[Item]:
    """Return the texts of a job without an encoder, as they are; tokens are estimated."""
    extra = extra_tokens(job.options)
    tokens = (max(1, estimate_tokens([text], None)) + extra for text in job.texts)
    return [Item(job, number, None, size) for number, size in enumerate(tokens)]


def jobs_of(items: Iterable[Item]) -> list[Job]:
    """Return the jobs that texts belong to, each once."""
    return list(dict.fromkeys(item.job for item in items))
