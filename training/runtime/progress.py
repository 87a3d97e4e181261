"""Progress bars: commands show them, Python programs only where they ask with `verbose=True`.

Where work may take a limited time, the bars end it: each step that they count is a chance to stop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:  # imported where a bar is made, so that --help stays fast
    from tqdm import tqdm

T = TypeVar("T")

READING_DELAY_S = 2.0
"""Before a bar shows that a file is being read: most are read sooner."""
_IS_SHOWN = ContextVar("is_shown", default=False)
_IS_OVER: ContextVar[Callable[[], bool]] = ContextVar("is_over", default=bool)


class OutOfTimeError(Exception):
    """The time of some work is over; what it kept in its folder stays."""


@contextmanager
def until(is_over: Callable[[], bool]) -> Iterator[None]:
    """End the body by an `OutOfTimeError` at the next step after the time is over.

    Args:
        is_over: Returns whether it is.
    """
    token = _IS_OVER.set(is_over)
    try:
        yield
    finally:
        _IS_OVER.reset(token)


def check_time() -> None:
    """End work whose time is over.

    Raises:
        OutOfTimeError: It is.
    """
    if _IS_OVER.get()():
        raise OutOfTimeError


def show_progress() -> None:
    """Show progress bars from now on."""
    _IS_SHOWN.set(True)


@contextmanager
def progress_shown(is_shown: bool) -> Iterator[None]:
    """Show progress bars, or leave it as it is, while the body runs."""
    token = _IS_SHOWN.set(is_shown or _IS_SHOWN.get())
    try:
        yield
    finally:
        _IS_SHOWN.reset(token)


def progress_bar(iterable: Any = None, **options: Any) -> tqdm[Any]:
    """Return a bar of tqdm, which shows itself at most once a second, or not at all."""
    from tqdm import tqdm

    class Bar(tqdm):  # type: ignore[type-arg]  # not subscriptable at run time
        def update(self, n: int | float | None = 1) -> bool | None:
            check_time()
            return super().update(n)

    return Bar(iterable, mininterval=1.0, disable=not _IS_SHOWN.get(), **options)


def counted(documents: Iterable[T], doing: str) -> Iterator[T]:
    """Yield documents that are read, with a bar that counts them where that takes a while."""
    yield from progress_bar(
        documents, desc=doing, unit=" documents", delay=READING_DELAY_S, leave=False
    )
