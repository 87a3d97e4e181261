"""What traffic teaches: the work and the size of batches; and clients' shares of a common room.

A batch of T tokens takes (T + A) / v seconds: v tokens a second, and A tokens' worth of cost of the
batch beside its tokens. So n workers get through n v T / (T + A) tokens a second, and for lambda
tokens a second T must be at least A u / (1 - u), with u = lambda / (n v). A service learns these
numbers from requests, so no client may teach it zero, infinity or NaN.

A client may hold `GREED` times the free part of a room (the dynamic threshold of Choudhury and
Hahne 1998, "Dynamic queue length thresholds for shared-memory packet switches"). So one client
alone holds up to 4/5 of the room, and n greedy ones 4/(4n + 1) each: the next client always finds
some.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial

from longtail.service.errors import QueueFullError

_MEMORY_S = 2.0
"""Time constant of the exponential decay, in seconds: long enough for some dozens of requests."""
_SURPLUS = 1.1
"""Speed over the traffic that is to be borne: at 1, waiting work would never become less."""


class ArrivalRate:
    """Tokens a second that come, with an exponentially fading memory."""

    def __init__(self) -> None:
        self._rate = 0.0
        self._at = -math.inf

    def add(self, tokens: int, now: float) -> None:
        """Take what has come, and when, in seconds of any clock that only goes forward."""
        self._rate = self.at(now) + tokens / _MEMORY_S
        self._at = max(now, self._at)

    def at(self, now: float) -> float:
        """Return the rate at a time, in tokens a second."""
        return self._rate * math.exp(-max(0.0, now - self._at) / _MEMORY_S)


def least_batch(rate: float, speed: float | None, num_workers: int, batch_cost: float) -> float:
    """Return the tokens a batch needs to keep up with the arriving load; may be inf.

    Args:
        rate: Tokens a second that come.
        speed: Tokens a second of one worker, what a batch costs among them; None: not known yet.
        num_workers: That compute batches at a time.
        batch_cost: What a batch costs beside its tokens, in tokens.
    """
    if speed is None:
        return 0.0
    use = _SURPLUS * rate / (num_workers * speed)
    return batch_cost * use / (1 - use) if use < 1 else math.inf


class MovingAverage:
    """An exponentially decaying average whose value is always a number within two bounds.

    A sample outside the bounds counts as the bound that it exceeds, so that one sample moves the
    value by a limited amount. A sample that is not finite is a failed measurement and is ignored.
    """

    def __init__(
        self, *, decay: float, lower: float, upper: float, initial: float | None = None
    ) -> None:
        """Start without samples.

        Args:
            decay: Share of the old value that a new sample leaves, from 0 to 1.
            lower: Smallest value; greater than 0.
            upper: Largest value; finite.
            initial: Value before the first sample, which is then averaged with it; None: there is
                no value, and the first sample becomes the value.
        """
        assert 0 <= decay < 1 and 0 < lower <= upper < math.inf
        self._decay = decay
        self._lower = lower
        self._upper = upper
        self.value = None if initial is None else self._clipped(initial)
        """The average; None before the first sample where no initial value was given."""

    def add(self, sample: float) -> None:
        """Take one more sample; one that is not finite is ignored."""
        if not math.isfinite(sample):
            return
        new = self._clipped(sample)
        if self.value is not None:
            new = self._decay * self.value + (1 - self._decay) * new
        self.value = self._clipped(new)  # once more, because sums are rounded

    def _clipped(self, value: float) -> float:
        return min(max(value, self._lower), self._upper)


GREED = 4
_CLIENT: ContextVar[str] = ContextVar("client of the request at hand", default="")


def set_client(name: str) -> None:
    """Let the request at hand, and all that is done for it, count as that of a client."""
    _CLIENT.set(name)


class Shares:
    """How much of a room is taken, and by whom; belongs to one event loop."""

    def __init__(self, size: int) -> None:
        """Begin empty."""
        self.size = size
        self.taken = 0
        self._taken_by: dict[str, int] = {}
        self._turn_of: dict[str, float] = {}

    @property
    def last_turn(self) -> float:
        """The latest `turn` of what the client of the request at hand holds; -inf of nothing."""
        return self._turn_of.get(_CLIENT.get(), -math.inf)

    @property
    def taken_by_client(self) -> int:
        """What the client of the request at hand holds."""
        return self._taken_by.get(_CLIENT.get(), 0)

    def ahead(self, amount: int) -> int:
        """Return the work queued ahead of `amount` more tokens from the current client.

        As clients take turns, that is as much of each client as this one has, and at most all that
        is taken.
        """
        own = self.taken_by_client
        num_clients = len(self._taken_by) + (own == 0)
        return min(self.taken, num_clients * (own + amount))

    def has_room(self, amount: int) -> bool:
        """Whether `amount` fits."""
        return self.taken + amount <= self.size

    def is_fair(self, amount: int) -> bool:
        """Whether the client of the request at hand may take `amount` besides what it holds."""
        return self.taken_by_client + amount <= GREED * (self.size - self.taken)

    def take(self, amount: int, turn: float = -math.inf) -> Callable[[], None]:
        """Take some of the room, without asking.

        Args:
            amount: How much.
            turn: When it would be done, were clients to take turns; a client's next is not earlier.

        Returns:
            A function that gives it back, to be called once.
        """
        client = _CLIENT.get()
        self._turn_of[client] = max(turn, self.last_turn)
        self.taken += amount
        self._taken_by[client] = self._taken_by.get(client, 0) + amount
        return partial(self._give_back, client, amount)

    def _give_back(self, client: str, amount: int) -> None:
        self.taken -= amount
        left = self._taken_by.pop(client, 0) - amount
        if left:
            self._taken_by[client] = left
        else:
            self._turn_of.pop(client, None)


class Slots:
    """How many things of a kind are done at a time."""

    def __init__(self, most: int, kind: str) -> None:
        """Begin with none."""
        self._shares = Shares(most)
        self._kind = kind

    @property
    def num_running(self) -> int:
        """Things that are being done."""
        return self._shares.taken

    @contextmanager
    def one_more(self) -> Iterator[None]:
        """Count one as long as the context lasts."""
        give_back = self._shares.take(1)
        try:
            yield
        finally:
            give_back()

    def check(self) -> None:
        """Refuse one more where there are as many as may be, or too many of one client."""
        if self._shares.has_room(1) and self._shares.is_fair(1):
            return
        raise QueueFullError(
            f"{self.num_running} {self._kind} are running, {self._shares.taken_by_client} of them "
            f"of this client, and {self._shares.size} may, of which some are kept for other "
            "clients; ask again later",
            retry_after_s=5,
        )
