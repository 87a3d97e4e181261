"""Files that survive a power cut: JSON, lines, and journals that only grow.

Files that hold texts of documents are private: 0600, in folders of 0700 where we make the folder.
All others have the permissions that the umask gives.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

from longtail.models.errors import FileContentError
from longtail.models.platform import REMOVES_OPEN_FILES, lock, move, read_at, sync_file, sync_folder

MAX_ELEMENTS = 2**17
"""Most elements of a JSON text, unless it holds something for each label, word or document."""
MANY_ELEMENTS = 2**24
"""Most elements of such a text; each takes 32 bytes or more while it is parsed."""


def check_elements(text: str | bytes, most: int) -> None:
    """Refuse a text in JSON with more elements than expected, before it is parsed."""
    found = text.count(",") if isinstance(text, str) else text.count(b",")
    if found > most:
        raise ValueError(f"got {found} commas, expected at most {most}")


def parse_json(text: str | bytes) -> Any:
    """Return what a text in JSON says."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("brackets are nested too deeply") from error


def parse_own_json(text: str) -> Any:
    """Parse JSON that Longtail wrote: standard JSON, all of it Unicode text."""
    try:
        found = json.loads(text, parse_constant=_refuse_constant)
        if "\\u" in text:  # only an escape can spell what no text file can hold
            _check_characters(found)
    except RecursionError as error:
        raise ValueError("brackets are nested too deeply") from error
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


def _check_characters(value: object) -> None:
    json.dumps(value, ensure_ascii=False).encode()


def sync_tree(folder: Path) -> None:
    """Make all files and names under a folder durable."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            sync_file(path)
        else:
            sync_folder(path)
    sync_folder(folder)


def make_private_folder(folder: Path) -> None:
    """Make a folder that only its owner can enter; one that exists keeps its permissions."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def make_private_file(path: Path) -> None:
    """Make an empty file that only its owner can read; one that exists stays as it is."""
    with suppress(FileExistsError):  # to open and close one would end SQLite's locks on it
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def share_like(folder: Path, model: Path) -> None:
    """Give all files in a folder the permissions of one of them, and all folders those of `folder`.

    Some libraries write files that only their owner can read, whatever the umask says.
    """
    file_mode, folder_mode = (stat.S_IMODE(path.stat().st_mode) for path in (model, folder))
    for path in folder.rglob("*"):
        if path.is_dir():
            path.chmod(folder_mode)
        elif path.stat().st_nlink == 1:  # else it is a file of another folder, too
            path.chmod(file_mode)


def make_read_only(folder: Path) -> None:
    """Let nobody write over files in place, which ends a process that maps them.

    A file of another owner stays as it is; so do all on Windows, which can't remove such files.
    """
    if not REMOVES_OPEN_FILES:
        return
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            with suppress(PermissionError):
                path.chmod(stat.S_IMODE(path.stat().st_mode) & ~0o222)


def read_json(path: Path) -> Any:
    """Return the content of a JSON file."""
    try:
        return parse_json(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise FileContentError(
            f"{path}: not JSON in UTF-8 ({error}); restore the file, or delete it with the folder "
            "it lies in and start again"
        ) from error


@contextmanager
def staged_folder(folder: Path, model: str) -> Iterator[Path]:
    """Yield a temporary folder that gets this name once it is whole and on disk, or is removed.

    Args:
        folder: Must not exist.
        model: Name of a file whose permissions all others get (see `share_like`).
    """
    incoming = folder.parent / f".incoming-{folder.name}-{os.getpid()}"
    shutil.rmtree(incoming, ignore_errors=True)  # of a killed process that had the same id
    incoming.mkdir(parents=True)
    try:
        yield incoming
        share_like(incoming, incoming / model)
        sync_tree(incoming)
        move(incoming, folder)
    except BaseException:
        shutil.rmtree(incoming, ignore_errors=True)
        raise
    sync_folder(folder.parent)


def write_json_durably(path: Path, content: Any) -> None:
    """Replace a JSON file atomically (see `write_lines_durably`)."""
    write_lines_durably(path, [json.dumps(content, indent=1)])


def write_lines_durably(path: Path, lines: Iterable[str], *, is_private: bool = False) -> None:
    """Replace a text file atomically; after a crash it holds the old content or the new.

    Args:
        path: The file; its folder exists.
        lines: Without line ends.
        is_private: Whether only the owner may read it, as it holds texts of documents.
    """
    incoming = path.with_name(f".incoming-{path.name}-{os.getpid()}")
    try:
        if is_private:
            make_private_file(incoming)
        with incoming.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{line}\n" for line in lines)
            file.flush()
            os.fsync(file.fileno())
        move(incoming, path)
    except BaseException:
        incoming.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


_ENTRY_START = b'{"at": '
"""First bytes of every line of a journal."""
_TORN_END = b" (cut off)"
"""Ends a line whose writer was killed; an entry ends with a brace."""


def append_entry(path: Path, fields: Mapping[str, Any]) -> None:
    """Append one JSON object with the time, as "at", to a journal; on return it is on disk.

    Several processes may append to one file, which may be append-only (`chattr +a`). A last line
    whose writer was killed stays, marked as cut off.
    """
    now = datetime.now(UTC).isoformat(timespec="seconds")
    line = json.dumps({"at": now, **fields}, ensure_ascii=False)
    is_new = not path.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+") as file:
        lock(file)
        size, last = os.fstat(file.fileno()).st_size, bytearray(b"\n")
        if size:
            read_at(file.fileno(), memoryview(last), size - 1)
        is_torn = last != b"\n"
        file.write((_TORN_END + b"\n" if is_torn else b"") + line.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
    if is_new:
        sync_folder(path.parent)


def read_entries(path: Path, key: str, advice: str) -> list[dict[str, Any]]:
    """Return the objects of a journal; lines that were not written to their end are left out.

    Args:
        path: The file; without it there are no entries.
        key: A field that each entry has.
        advice: What the line should be and what to do, for the message.
    """
    if not path.exists():
        return []
    *lines, torn = path.read_bytes().split(b"\n")
    if not _is_begun(torn):
        lines.append(torn)
    entries = []
    for number, line in enumerate(lines, 1):
        if line.endswith(_TORN_END) and _is_begun(line.removesuffix(_TORN_END)):
            continue
        try:
            entry = parse_json(line.decode())
        except ValueError:
            entry = None
        if not isinstance(entry, dict) or key not in entry:
            raise FileContentError(f"{path}, line {number}: {advice}")
        entries.append(entry)
    return entries


def _is_begun(line: bytes) -> bool:
    """Whether a line without an end may be one of a journal, or nothing."""
    return line[: len(_ENTRY_START)] == _ENTRY_START[: len(line)]
