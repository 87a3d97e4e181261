"""Who may wait: bounds on unfinished work, in tokens and in time, of all clients and of each.

One rule for all work: what finds no room is refused before any of it is done. A single request is
refused at once, if possible before its body is read (`reserve`); a line of a batch waits for room
instead. Belongs to one event loop; only `note_speed` may be called from elsewhere.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from enum import IntEnum

from longtail.service.engine.traffic import MovingAverage, Shares
from longtail.service.errors import QueueFullError

CHARACTERS_A_TOKEN = 4
"""About right for English text and WordPiece; only for estimates before tokenising."""

_BULK_SHARE = 0.5
"""Share of the queue that bulk work may fill; the rest is reserved for interactive work."""
_WAIT_SHARE = 0.5
"""Share of its time limit that a request may be expected to wait; computing gets the rest."""
_SPEED_DECAY = 0.9
_SLOWEST, _FASTEST = 0.1, 1e9
"""Tokens a second between which the learned speed stays, whatever batches there were."""
_SIZE_DECAY = 0.99
_FIRST_SIZE = 16.0
"""Tokens that a request is taken to have as long as none has been seen."""
_SMALLEST_SIZE = 2.0
_MIN_RESERVATIONS = 64
"""Requests, at least, that may be read at a time: the learned size of a request never takes more
than this share of the room, so that a few huge requests can't shut out all others."""
_RESERVATION_S = 1.0
_NUM_PARSE_SLOTS = 4
"""Requests that are read, from JSON to their texts, at a time. It takes the event loop a
millisecond each; what comes meanwhile must not wait for hundreds of them."""
_MAX_RETRY_AFTER_S = 60


class Priority(IntEnum):
    """Who goes first: lower ones."""

    INTERACTIVE = 0
    BULK = 1


class Reservation:
    """Room in the queue for a request whose body has not been read yet.

    It is held until the size of the request is known, or for a second: a slow client must not keep
    others out.
    """

    def __init__(self, give_back: Callable[[], None], parse_slots: asyncio.Semaphore) -> None:
        """Hold the room.

        Args:
            give_back: Gives it back; called when the reservation is released.
            parse_slots: Permits to parse a request.
        """
        self._give_back: Callable[[], None] | None = give_back
        self._parse_slots = parse_slots
        self._has_parse_slot = False
        self._lapse = asyncio.get_running_loop().call_later(_RESERVATION_S, self.release)

    async def wait_for_parse_slot(self) -> None:
        """Wait until few other requests are being parsed; to be called when the body is whole."""
        if self._give_back is not None and not self._has_parse_slot:
            self._lapse.cancel()  # what is to come now takes no client's time
            await self._parse_slots.acquire()
            self._has_parse_slot = True

    def release(self) -> None:
        """Release the room; releasing it again does nothing."""
        give_back, self._give_back = self._give_back, None
        if give_back is not None:
            self._lapse.cancel()
            give_back()
        if self._has_parse_slot:
            self._has_parse_slot = False
            self._parse_slots.release()


_RESERVATION: ContextVar[Reservation | None] = ContextVar(
    "reservation of the request at hand", default=None
)


def estimate_tokens(texts: Sequence[str], most: int | None) -> int:
    """Return about how many tokens must be read of texts, without tokenising them.

    Args:
        texts: Any.
        most: Tokens that are read of one text; None: all.
    """
    counts = (2 + len(text) // CHARACTERS_A_TOKEN for text in texts)  # 2: [CLS] and [SEP]
    return sum(counts if most is None else (min(count, most) for count in counts))


class Admission:
    """Counts the tokens of all work that is not finished, and refuses what would be too much."""

    def __init__(self, max_tokens: int, num_workers: Callable[[], int] = lambda: 1) -> None:
        """Begin with nothing waiting.

        Args:
            max_tokens: Tokens that may be unfinished; work that alone has more is let in when
                nothing else waits.
            num_workers: Says how many batches are computed at a time.
        """
        self._max_tokens = max_tokens
        self._num_workers = num_workers
        self._interactive = Shares(max_tokens)
        self._bulk_tokens = 0
        self._tokens_a_second = MovingAverage(  # of one worker
            decay=_SPEED_DECAY, lower=_SLOWEST, upper=_FASTEST
        )
        self._size = MovingAverage(  # tokens of a request
            decay=_SIZE_DECAY,
            lower=_SMALLEST_SIZE,
            upper=max(_FIRST_SIZE, max_tokens / _MIN_RESERVATIONS),
            initial=_FIRST_SIZE,
        )
        self._parse_slots = asyncio.Semaphore(_NUM_PARSE_SLOTS)
        self._turns: list[asyncio.Future[None]] = []

    @property
    def tokens(self) -> int:
        """Tokens of all unfinished work."""
        return self._interactive.taken + self._bulk_tokens

    def note_speed(self, tokens: int, seconds: float) -> None:
        """Learn how fast work is done, from a batch that was; a time that is none is ignored."""
        if 0 < seconds < math.inf:
            self._tokens_a_second.add(tokens / seconds)

    @property
    def tokens_a_second(self) -> float | None:
        """Learned tokens a second of one worker, batch overhead included; None before a batch."""
        return self._tokens_a_second.value

    def expected_wait_s(self, tokens: int = 0) -> float:
        """Return the seconds that interactive work of the client at hand will wait, about.

        Clients take turns (see `admit`).

        Args:
            tokens: The work, beside what its client has unfinished.
        """
        speed = self._tokens_a_second.value
        if speed is None:  # nothing has been computed yet
            return 0.0
        ahead = self._interactive.ahead(tokens)
        return ahead / (speed * max(1, self._num_workers())) if ahead else 0.0

    def check(self, tokens: int, timeout_s: float) -> float:
        """Refuse interactive work that there is no room for.

        Returns:
            The seconds that it will wait, about.
        """
        shares = self._interactive
        wait_s = self.expected_wait_s(tokens)
        if shares.taken and not shares.has_room(tokens):
            raise QueueFullError(
                f"{shares.taken} tokens of text are waiting, and {self._max_tokens} may; "
                "ask again later",
                _retry_after_s(wait_s),
            )
        if shares.taken and not shares.is_fair(tokens):
            raise QueueFullError(
                f"{shares.taken_by_client} tokens of this client's texts are waiting, and the rest "
                f"of the {self._max_tokens} that may is kept for other clients; ask again later",
                _retry_after_s(wait_s),
            )
        if wait_s > _WAIT_SHARE * timeout_s:
            raise QueueFullError(
                f"{shares.taken} tokens of text are waiting, which takes about {wait_s:.1f} s: too "
                f"long for a time limit of {timeout_s:g} s; ask again later",
                _retry_after_s(wait_s - _WAIT_SHARE * timeout_s),
            )
        return wait_s

    def reserve(self, timeout_s: float) -> Reservation:
        """Hold room for the request at hand, as for one of usual size, before anything is read.

        `admit`, within the same request, gives it back for the room that is really needed; so does
        time.
        """
        tokens = math.ceil(self._size.value or _FIRST_SIZE)
        self.check(tokens, timeout_s)
        reservation = Reservation(self._interactive.take(tokens), self._parse_slots)
        _RESERVATION.set(reservation)
        return reservation

    @contextmanager
    def admit(self, tokens: int, timeout_s: float) -> Iterator[float]:
        """Hold room for interactive work as long as the context lasts.

        Yields:
            Its turn, by `time.perf_counter`: others that come later go before it if they have an
            earlier one. It lies as many seconds ahead as it will wait, or, as the speed of batches
            leaves out tokenising, as its client's part of the queue times its time limit; and not
            before the turn of what its client has waiting: the longer the queue was, the later
            would it else be answered than what its client asks for after it.
        """
        if (reservation := _RESERVATION.get()) is not None:
            reservation.release()
        wait_s = self.check(tokens, timeout_s)
        self._size.add(tokens)
        part = self._interactive.ahead(tokens) / self._max_tokens
        now = time.perf_counter()
        turn = max(now + max(wait_s, part * timeout_s), self._interactive.last_turn)
        give_back = self._interactive.take(tokens, turn)
        try:
            yield turn
        finally:
            give_back()

    @asynccontextmanager
    async def admit_when_room(self, tokens: int) -> AsyncIterator[None]:
        """Wait until there is room for bulk work, and hold it as long as the context lasts."""
        while not self._has_room_for_bulk(tokens):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._turns.append(turn)
            await turn
        self._bulk_tokens += tokens
        try:
            yield
        finally:
            self._bulk_tokens -= tokens
            turns, self._turns = self._turns, []
            for turn in turns:  # each looks again whether there is room, the longest waiting first
                if not turn.done():
                    turn.set_result(None)

    def _has_room_for_bulk(self, tokens: int) -> bool:
        held = self._bulk_tokens
        return not held or held + tokens <= _BULK_SHARE * self._max_tokens


def _retry_after_s(wait_s: float) -> int:
    return min(max(1, math.ceil(wait_s)), _MAX_RETRY_AFTER_S)
