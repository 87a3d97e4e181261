"""Shares of a common room: no client may take so much of it that nothing is left for others.

A client may hold `GREED` times what is free (the dynamic threshold of Choudhury and Hahne 1998,
"Dynamic queue length thresholds for shared-memory packet switches"). So one client alone holds up
to 4/5 of the room, and n greedy ones 4/(4n + 1) each: whoever comes next always finds some.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial

from longtail.service.errors import QueueFullError

GREED = 4
_CLIENT: ContextVar[str] = ContextVar("client of the request at hand", default="")


def set_client(name: str) -> None:
    """Let the request at hand, and all that is done for it, count as that of a client."""
    _CLIENT.set(name)


class Shares:
    """How much of a room is taken, and by whom; belongs to one event loop."""

    def __init__(self, size: int) -> None:
        """Begin empty.

        Args:
            size: Of the room, in any unit.
        """
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
        """Return what goes before so much more of the client of the request at hand.

        As clients take turns, that is as much of each client as this one has, and at most all that
        is taken.
        """
        own = self.taken_by_client
        num_clients = len(self._taken_by) + (own == 0)
        return min(self.taken, num_clients * (own + amount))

    def has_room(self, amount: int) -> bool:
        """Whether there is so much room."""
        return self.taken + amount <= self.size

    def is_fair(self, amount: int) -> bool:
        """Whether the client of the request at hand may take so much besides what it holds."""
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
        """Begin with none.

        Args:
            most: That may be done at a time.
            kind: What they are, for messages: "batches".
        """
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
        """Refuse one more where there are as many as may be, or too many of one client.

        Raises:
            QueueFullError: There are.
        """
        if self._shares.has_room(1) and self._shares.is_fair(1):
            return
        raise QueueFullError(
            f"{self.num_running} {self._kind} are running, {self._shares.taken_by_client} of them "
            f"of this client, and {self._shares.size} may, of which some are kept for other "
            "clients; ask again later",
            retry_after_s=5,
        )
