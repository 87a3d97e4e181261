"""Text files, plain or gzip-compressed, UTF-8 or UTF-16, read line by line; lists of bad lines."""

from __future__ import annotations

import codecs
import gzip
import io
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from longtail.models.errors import DataError, ignore

MAX_LINE_BYTES = 64 * 2**20
"""Longest line: what one document may cost in memory."""

_BLOCK_BYTES = 2**20
_BYTE_ORDER_MARK = codecs.BOM_UTF8
ByteFile: TypeAlias = io.BufferedReader | gzip.GzipFile

_KIND_BYTES = 5
_OTHER_KINDS = (
    (b"\x1f\x8b", "gzip-compressed", "add .gz to its name"),
    (b"PK\x03\x04", "a zip archive or an Excel workbook", "unpack it, or save the sheet as CSV"),
    (b"\xd0\xcf\x11\xe0", "an Excel workbook", "save the sheet as CSV"),
    (b"PAR1\x15", "a Parquet file", "call it .parquet"),
    (b"BZh9", "bzip2-compressed", "unpack it"),
    (b"\xfd7zX", "xz-compressed", "unpack it"),
    (b"\x28\xb5\x2f\xfd", "zstd-compressed", "unpack it"),
)
"""Files that are no text: first bytes, their kind, the remedy."""


class LongLineError(DataError):
    """A line is longer than `MAX_LINE_BYTES`."""


class AsUtf8(io.RawIOBase):
    """A file of another encoding, read as if it were UTF-8."""

    def __init__(self, file: io.BufferedIOBase, encoding: str) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._left = b""

    def readable(self) -> bool:
        """Return that it is."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Put the next bytes into a buffer, and return how many; 0 at the end."""
        while not self._left:
            read = self._file.read(_BLOCK_BYTES)
            self._left = self._decoder.decode(read, final=not read).encode()
            if not read:
                break
        size = min(len(buffer), len(self._left))
        buffer[:size], self._left = self._left[:size], self._left[size:]
        return size


def lines(path: Path, progress: Callable[[int], object] = ignore) -> Iterator[tuple[int, bytes]]:
    """Yield each line in UTF-8 with its number from 1, without the byte order mark."""
    for number, line in enumerate(bounded_lines(path, MAX_LINE_BYTES, progress), 1):
        if line is None:
            raise LongLineError(
                f"{path}, line {number}: longer than {MAX_LINE_BYTES} bytes; expected one document "
                "a line"
            )
        yield number, line


def bounded_lines(
    path: Path, max_bytes: int, progress: Callable[[int], object] = ignore
) -> Iterator[bytes | None]:
    """Yield each line in UTF-8 with its end, without the byte order mark; None for a longer one.

    Args:
        path: The file.
        max_bytes: Most bytes of a line, its end not counted.
        progress: Called with the bytes of the file, as it is on disk, that were read since.
    """
    num_told = num_unseen = 0
    with reading(path) as (file, raw):
        while line := file.readline(max_bytes + 1):
            is_whole = len(line) <= max_bytes or line.endswith(b"\n")
            yield line if is_whole else None
            while not is_whole:
                is_whole = file.readline(_BLOCK_BYTES)[-1:] in {b"\n", b""}
            num_unseen += len(line)
            if num_unseen >= _BLOCK_BYTES and raw.seekable():
                progress(raw.tell() - num_told)
                num_told, num_unseen = raw.tell(), 0
        if raw.seekable():
            progress(raw.tell() - num_told)


def raw_blocks(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file in its own encoding, in blocks."""
    with _decompressed(path) as (file, _):
        while block := file.read(_BLOCK_BYTES):
            yield block


def encoding_of(path: Path) -> str | None:
    """Return the encoding of a file that is read as if it were UTF-8; None where it is UTF-8."""
    with _decompressed(path) as (file, _):
        return _encoding_of_start(file.peek(4)[:4])


@contextmanager
def reading(path: Path) -> Iterator[tuple[ByteFile, io.BufferedReader]]:
    """Give the file for reading.

    Yields:
        Its bytes in UTF-8, decompressed, without the byte order mark; and the file on disk, whose
        position tells how much was read.
    """
    try:
        with _decompressed(path) as (file, raw):
            start = file.peek(4)[:4]
            encoding = _encoding_of_start(start)
            if start.startswith(_BYTE_ORDER_MARK):
                file.read(len(_BYTE_ORDER_MARK))
            yield file if encoding is None else io.BufferedReader(AsUtf8(file, encoding)), raw
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}: begins as {error.encoding} and is not to its end ({error.reason}); "
            "save the file as UTF-8"
        ) from error


@contextmanager
def _decompressed(path: Path) -> Iterator[tuple[ByteFile, io.BufferedReader]]:
    """Give the file for reading.

    Yields:
        Its bytes as they are, decompressed; and as they are on disk, to tell how much was read.
    """
    try:
        with path.open("rb") as raw, gzip.open(raw) if path.suffix == ".gz" else raw as file:
            _check_is_text(path, file.peek(_KIND_BYTES)[:_KIND_BYTES])
            yield file, raw
    except gzip.BadGzipFile as error:
        raise DataError(
            f"{path}: is no gzip file, or has more behind it ({error}); if it is not compressed, "
            "take .gz off its name"
        ) from error
    except FileNotFoundError as error:
        raise DataError(
            f"{path}: can't be read: there is no such file; look at its name and folder"
        ) from error
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: can't be read to its end ({error}); is it whole?") from error


def _check_is_text(path: Path, start: bytes) -> None:
    for first, what, advice in _OTHER_KINDS:
        if start.startswith(first):
            raise DataError(f"{path}: is {what} by its first bytes; {advice}")


def _encoding_of_start(start: bytes) -> str | None:
    """Return the encoding that the first four bytes of a file tell; None for UTF-8.

    Without a byte order mark UTF-16 is known by its zeros: the first character of a corpus is a
    bracket, a quote, or a letter or digit of ASCII.
    """
    if start.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "utf-32"
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if len(start) > 1 and (start[0] == 0) != (start[1] == 0):
        return "utf-16-be" if start[0] == 0 else "utf-16-le"
    return None


_MAX_REASON_CHARACTERS = 400


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that can't be used.

    Attributes:
        line: Its number in its file, from 1; of a CSV record, its first line.
        reason: What is wrong with it.
    """

    line: int
    reason: str


class ProblemList:
    """The problems of one file: all are counted, the first are kept."""

    def __init__(self, path: Path, max_kept: int) -> None:
        """Start with no problems."""
        self._path = path
        self._max_kept = max_kept
        self._kept: list[str] = []
        self.num_problems = 0

    def add(self, problem: BadLine) -> None:
        """Count a problem, and keep it if there is room."""
        self.num_problems += 1
        if len(self._kept) < self._max_kept:
            reason = problem.reason
            if len(reason) > _MAX_REASON_CHARACTERS:
                reason = reason[:_MAX_REASON_CHARACTERS] + "..."
            self._kept.append(f"{self._path.name}, line {problem.line}: {reason}")

    @property
    def kept(self) -> tuple[str, ...]:
        """The first problems, each as file name, line number and reason."""
        return tuple(self._kept)


def list_problems(kept: Sequence[str], num_problems: int) -> str:
    """Return the problems that were kept, one a line, and how many more there are."""
    num_more = num_problems - len(kept)
    more = [f"... and {num_more} more"] if num_more else []
    return "\n".join(f"  {line}" for line in [*kept, *more])
