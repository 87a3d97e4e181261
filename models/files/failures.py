"""How a command reports a failure: one sentence for each, and an exit status.

Exit statuses, which hold for every command:

    0    it did what was asked
    1    it failed; the last line on stderr says why
    2    the command line can't be read: an unknown option, or a value of the wrong type
    130  it was interrupted (Ctrl-C); 128 + n for any other signal n
    141  the reader of the output went away, as in `longtail ... | head`
"""

from __future__ import annotations

import errno
import json
import os
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from longtail.models.errors import LongtailError

FAILED = 1
INTERRUPTED = 130
READER_GONE = 141
DEBUG_VARIABLE = "LONGTAIL_DEBUG"

_RESUMED = frozenset({"train", "demo", "learn"})
"""Commands that go on where they were stopped."""
_MAX_CHARACTERS = 500
"""Shown of an error of another library, which may hold a whole document."""
_OS_ERROR = re.compile(r"\(os error (\d+)\)")  # how libraries written in Rust show them
_WRITE_ELSEWHERE = "write to another folder, or change its permissions"
_REASONS = {
    errno.EACCES: ("permission denied", _WRITE_ELSEWHERE),
    errno.EPERM: ("the operation is not permitted", _WRITE_ELSEWHERE),
    errno.EROFS: ("the file system is read-only", "write to another folder"),
    errno.ENOSPC: ("no space is left on the disk", "free some space, or write to another disk"),
    errno.EDQUOT: ("the disk quota is used up", "free some space, or write to another disk"),
    errno.EFBIG: ("the file would be too large", "raise the limit (ulimit -f), or write elsewhere"),
    errno.ENOENT: ("there is no such file or folder", "check the path"),
    errno.EEXIST: ("it is there already", "remove it, or choose another name"),
    errno.EISDIR: ("it is a folder, expected a file", "give the path of a file"),
    errno.ENOTDIR: ("a file, expected a folder", "check the path"),
    errno.ENOTEMPTY: ("the folder is not empty", "choose another"),
    errno.ENAMETOOLONG: ("the name is too long", "give a shorter one"),
    errno.ELOOP: ("its symbolic links go round in a circle", "mend the links"),
    errno.EMLINK: ("the folder has too many entries", "choose another"),
    errno.EMFILE: ("too many files are open", "raise the limit (ulimit -n)"),
    errno.ENFILE: ("too many files are open on this machine", "close some programs"),
    errno.ENOMEM: ("out of memory", "use a machine with more, or a smaller batch or model"),
    errno.EIO: ("the disk failed to read or write", "check the disk"),
}
_OF_WRITING = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS})
_OUT_OF_MEMORY = _REASONS[errno.ENOMEM]


class CommandStoppedError(Exception):
    """A command ended because it was interrupted, or because nobody reads its output any more.

    Attributes:
        status: The exit status that says so.
    """

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status

    def message(self, command: str) -> str:
        """Return what to say of it, if there is anyone to hear it."""
        if self.status != INTERRUPTED:
            return ""
        then = "; the same command resumes the work" if command in _RESUMED else ""
        return f"Interrupted{then}."


@dataclass(frozen=True, slots=True)
class Failure:
    """How a command ends.

    Attributes:
        status: The exit status.
        message: One sentence for the person; empty where there is nothing to say.
    """

    status: int
    message: str


@contextmanager
def doing(what: str, path: Path) -> Iterator[None]:
    """Add the action and the path to an error of the operating system.

    Its type stays as it is, so callers that handle OSError still do.

    Args:
        what: Such as "writing the answers".
        path: Named where the error itself names no file, as that of a full disk.
    """
    try:
        yield
    except Exception as error:
        if os_error_number(error) is not None:
            if isinstance(error, OSError) and error.filename is None:
                error.filename = str(path)
            error.add_note(what if isinstance(error, OSError) else f"{what} to {str(path)!r}")
        raise


def explain(error: BaseException, command: str = "") -> Failure:
    """Return how a command ends that this error has ended.

    Args:
        error: What was raised.
        command: Its name, such as "train".
    """
    if isinstance(error, LongtailError):
        return Failure(
            FAILED, f"Error: {'; '.join([str(error), *getattr(error, '__notes__', ())])}"
        )
    if isinstance(error, KeyboardInterrupt):
        error = CommandStoppedError(INTERRUPTED)
    if isinstance(error, BrokenPipeError):
        error = CommandStoppedError(READER_GONE)
    if isinstance(error, CommandStoppedError):
        return Failure(error.status, error.message(command))
    return Failure(FAILED, f"Error: {_sentence_of(error)}")


def reason_of(error: BaseException) -> str:
    """Return the reason of an error of the operating system in words, and what to do about it."""
    number = os_error_number(error)
    if number in _REASONS:
        return "; ".join(_REASONS[number])
    return _shortened(getattr(error, "strerror", None) or str(error) or type(error).__name__)


def os_error_number(error: BaseException) -> int | None:
    """Return the number of an error of the operating system, also of one that a library wrapped."""
    if isinstance(error, OSError):
        return error.errno
    if type(error).__name__ == "SafetensorError" and (found := _OS_ERROR.search(str(error))):
        return int(found.group(1))
    if isinstance(error, RuntimeError) and str(error).startswith("Symlink loop"):
        return errno.ELOOP  # of pathlib
    return None


def _sentence_of(error: BaseException) -> str:
    if isinstance(error, OSError) or os_error_number(error) is not None:
        return _sentence_of_os_error(error)
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return "; ".join(_OUT_OF_MEMORY)
    if isinstance(error, json.JSONDecodeError | UnicodeDecodeError):
        kind = "JSON" if isinstance(error, json.JSONDecodeError) else "text in UTF-8"
        return (
            f"a file that was read is not {kind} ({_shortened(str(error))}); {_how_to_see_more()}"
        )
    cause = _cause_of(error)
    if isinstance(cause, ImportError) and not (cause.name or "").startswith("longtail"):
        return (
            f"a package can't be imported ({_shortened(str(cause))}); install what it lacks, "
            f"or the package again ('python -m pip check' names conflicts); {_how_to_see_more()}"
        )
    frame = traceback.extract_tb(error.__traceback__)[-1:]
    place = f" in {Path(frame[0].filename).name}, line {frame[0].lineno}" if frame else ""
    return (
        f"unexpected {type(error).__name__}{place}: {_shortened(str(error)) or 'no message'}; this "
        f"is a fault of Longtail, please report it; {_how_to_see_more()}"
    )


def _cause_of(error: BaseException) -> BaseException:
    """Return the import that failed first: NumPy's own words for a missing library are long."""
    while isinstance(error.__cause__, ImportError):
        error = error.__cause__
    return error


def _sentence_of_os_error(error: BaseException) -> str:
    what = ": ".join(getattr(error, "__notes__", ())[:1])
    names = [getattr(error, name, None) for name in ("filename", "filename2")]
    paths = " to ".join(repr(os.fsdecode(name)) for name in names if isinstance(name, str | bytes))
    if not what and not paths and os_error_number(error) in _OF_WRITING:
        what = "writing to standard output, or to a file"
    return ": ".join(filter(None, [what, paths, reason_of(error)]))


def _how_to_see_more() -> str:
    return f"'longtail --debug ...', or {DEBUG_VARIABLE}=1, shows all details"


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_CHARACTERS else f"{line[:_MAX_CHARACTERS]}..."
