"""Where commands write: checked before the work begins, and the same rule for every command.

- An input is never written over, whatever path, link or hard link names it.
- A result that is there is kept, unless `--overwrite` is given.
- A folder in which work is resumed must be empty, or hold work of the same kind.
- Nothing but versions goes into a registry.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from longtail.models.errors import ConfigError
from longtail.models.files.failures import reason_of
from longtail.models.platform import lock, remove_locked

_NOT_OURS = frozenset({"lost+found"})
"""Names that a file system puts into an empty folder; hidden ones don't count either."""


def check_output_file(
    path: Path,
    *,
    inputs: Iterable[Path] = (),
    registry: Path | None = None,
    overwrite: bool = False,
    option: str = "--output",
) -> None:
    """Refuse a file that a command must not write, or can't.

    Args:
        path: The file.
        inputs: Files that the command reads.
        registry: Folder of the registry that it reads, if it reads one.
        overwrite: Whether a file that is there may be replaced.
        option: What named the file.
    """
    where = f"{option} {str(path)!r}"
    check_not_in_registry(path, registry, option)
    for each in inputs:
        if is_same_file(path, each):
            raise ConfigError(
                f"{where}: is the input {str(each)!r}, which would be lost; choose another file"
            )
    if path.is_dir():
        raise ConfigError(f"{where}: is a folder, expected a file; give the path of a file")
    if path.exists() and not path.is_file():
        raise ConfigError(f"{where}: is a device or a pipe, expected a file; choose a file")
    if path.exists() and not overwrite:
        raise ConfigError(
            f"{where} already exists; pass --overwrite to replace it, or choose another file"
        )
    if path.exists() and not os.access(path, os.W_OK):
        raise ConfigError(f"{where}: can't be replaced; choose another file")
    check_writable_folder(path.parent, option)


def check_output_folder(
    folder: Path,
    results: Iterable[str],
    *,
    inputs: Iterable[Path] = (),
    registry: Path | None = None,
    overwrite: bool = False,
) -> None:
    """Refuse a folder whose files a command must not write, or can't.

    Args:
        folder: Made when it is needed.
        results: Names of what will be written in it.
        inputs: Files that the command reads.
        registry: Folder of the registry that it reads.
        overwrite: Whether results that are there may be replaced.
    """
    check_not_in_registry(folder, registry, "--output")
    check_writable_folder(folder, "--output")
    paths = [folder / name for name in results]
    inputs = list(inputs)
    for path in paths:
        if any(is_same_file(path, each) for each in inputs):
            raise ConfigError(
                f"--output {str(folder)!r}: {path.name!r} in it is an input, which would be lost; "
                "choose another folder"
            )
    there = [path.name for path in paths if path.exists()]
    if there and not overwrite:
        raise ConfigError(
            f"--output {str(folder)!r}: holds {there[0]!r} already; replace the results in it with "
            "--overwrite, or choose another folder"
        )


def check_own_folder(folder: Path, marker: str, option: str) -> None:
    """Refuse a folder for work that holds anything else than such work.

    Args:
        folder: Made when it is needed.
        marker: Name of a file that such work has in it.
        option: What named the folder.
    """
    check_writable_folder(folder, option)
    if not folder.is_dir() or (folder / marker).is_file():
        return
    if names := visible_names(folder):
        raise ConfigError(
            f"{option} {str(folder)!r}: holds other files ({names[0]!r}), which the work could "
            f"replace; choose an empty folder, or one with work to resume (it has {marker!r})"
        )


def visible_names(folder: Path) -> list[str]:
    """Return the names in a folder, sorted, without hidden ones."""
    names = (path.name for path in folder.iterdir())
    return sorted(name for name in names if name not in _NOT_OURS and not name.startswith("."))


def check_not_in_registry(path: Path, registry: Path | None, option: str) -> None:
    """Refuse a path in a registry, where a file of another kind breaks the version that gets it."""
    if registry is not None and _real(path).is_relative_to(_real(registry)):
        raise ConfigError(
            f"{option} {str(path)!r}: lies in the registry {str(registry)!r}, which holds versions "
            "only; choose another place"
        )


def check_writable_folder(folder: Path, option: str) -> None:
    """Refuse a folder in which no file can be made; the folder itself is not made yet."""
    where = f"{option} {str(folder)!r}"
    try:
        nearest = next(path for path in (folder, *folder.parents) if _exists(path))
        if not nearest.is_dir():
            raise ConfigError(f"{where}: {str(nearest)!r} is a file, expected a folder")
        with tempfile.TemporaryFile(dir=nearest):  # access rights alone say nothing to root
            pass
    except OSError as error:
        raise ConfigError(f"{where}: can't be written to: {reason_of(error)}") from error


def check_readable_file(path: Path, option: str) -> None:
    """Refuse an input that is no file or can't be opened; a pipe is left unread."""
    check_not_device(path, option)
    try:
        if path.is_file() or path.is_dir() or not path.exists():
            path.open("rb").close()
    except OSError as error:
        reason = reason_of(error).split(";")[0]  # it advises where to write instead
        raise ConfigError(
            f"{option} {str(path)!r}: can't be read: {reason}; check the path and its permissions"
        ) from error


def check_not_device(path: Path, option: str) -> None:
    """Refuse a device as an input: some give bytes without end."""
    if path.is_char_device():
        raise ConfigError(f"{option} {str(path)!r}: is a device, expected a file; choose a file")


def is_same_file(first: Path, second: Path) -> bool:
    """Whether two paths name one file, be it by a link, a hard link or another spelling."""
    try:
        return first.samefile(second)
    except OSError:  # one of them is not there
        return _real(first) == _real(second)


@contextmanager
def held(path: Path, refusal: str) -> Iterator[None]:
    """Hold a lock that ends with the process, however that ends.

    Args:
        path: The lock's file; its folder must exist. It is removed at the end.
        refusal: What to say where another process holds it.
    """
    with path.open("ab") as file:
        try:
            lock(file, waits=False)
        except BlockingIOError as error:
            raise ConfigError(refusal) from error
        if not _names(path, file.fileno()):  # removed by a holder that has just ended
            raise ConfigError(refusal)
        try:
            yield
        finally:
            remove_locked(path, file)


def _names(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False


def _real(path: Path) -> Path:
    # Unlike Path.resolve, this takes links that go round in a circle.
    return Path(os.path.realpath(path))


def _exists(path: Path) -> bool:
    return path.exists() or path.is_symlink()
