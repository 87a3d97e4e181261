"""The registry: numbered bundles in one folder, and the alias `current` that is moved atomically.

    registry/
      registry.json      {"current": 2, "history": [1], "published_at": {"1": ..., "2": ...}}
      changes.jsonl      who changed what, see `ChangeLog`
      1/  2/             bundles

Writers hold a lock on `.lock`; readers need none, for every file is replaced by a rename.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, StringConstraints

from longtail.models.bundle.bundle import Bundle, check_regular_file, open_bundle, read_manifest
from longtail.models.bundle.manifest import MAX_MANIFEST_BYTES, Manifest
from longtail.models.errors import (
    BundleCorruptError,
    BundleError,
    BundleNotFoundError,
    ConfigError,
    LongtailError,
)
from longtail.models.files.durable import (
    append_entry,
    make_read_only,
    read_entries,
    write_json_durably,
)
from longtail.models.files.failures import doing
from longtail.models.files.outputs import check_writable_folder, visible_names
from longtail.models.files.typed_json import json_forms
from longtail.models.options import MAX_VERSION
from longtail.models.platform import lock, move, sync_folder, user_name

CHANGES_NAME = "changes.jsonl"
"""In the folder of the registry."""
_NO_LOG = "no line of the log of changes of a registry; restore the file, or move it away"


@dataclass(frozen=True, slots=True)
class Author:
    """Who asks for a change.

    Attributes:
        user: User of the operating system; None where a service was asked over HTTP.
        key: Name of the key that a service was asked with.
        request_id: Id of that request.
    """

    user: str | None = None
    key: str | None = None
    request_id: str | None = None

    @classmethod
    def of_process(cls) -> Author:
        """Return the user who runs this process."""
        return cls(user=user_name())

    def to_json(self) -> dict[str, str]:
        """Return all fields as a string."""
        fields = {"user": self.user, "key": self.key, "request_id": self.request_id}
        return {name: value for name, value in fields.items() if value is not None}


class ChangeLog:
    """The log of one registry; writers hold the registry's lock."""

    def __init__(self, folder: Path) -> None:
        """Name the registry's folder; the file is made with its first line."""
        self.path = folder / CHANGES_NAME

    def append(
        self,
        action: str,
        version: int,
        digest: str | None,
        current: tuple[int | None, int | None],
        author: Author | None,
    ) -> None:
        """Add a change that is about to be made; the line is on disk when this returns.

        So there is no change without a line. After a crash the last change may not have been made;
        the same command then adds a line of its own.

        Args:
            action: "train", "learn", "activate", "rollback", "remove", ...
            version: That is published, activated or removed.
            digest: Digest of that version; None where it can't be read.
            current: What `current` names before and after.
            author: Who asked for it; None: the user who runs this process.
        """
        before, after = current
        by = (author or Author.of_process()).to_json()
        entry = {
            "action": action, "version": version, "from": before, "to": after, "digest": digest,
        }  # fmt: skip
        with doing("writing the log of changes", self.path):
            append_entry(self.path, entry | by)

    def entries(self) -> list[dict[str, Any]]:
        """Return all changes, the oldest first: "at" (UTC), the fields of `append`, and `Author`'s.

        Raises:
            FileContentError: A line is none of this log.
        """
        with doing("reading the log of changes", self.path):
            return read_entries(self.path, "action", _NO_LOG)


logger = logging.getLogger(__name__)

CURRENT = "current"
STATE_NAME = "registry.json"
_TRASH_PREFIX = ".removed-"
_INCOMING_PREFIX = ".incoming-"
_Version = Annotated[int, Field(ge=1, le=MAX_VERSION)]
_Number = Annotated[str, StringConstraints(pattern="^([1-9][0-9]{0,17}|[1-8][0-9]{18})$")]


@dataclass(frozen=True, slots=True)
class RegistryState:
    """What the registry's file holds.

    Attributes:
        current: The version that the alias names.
        history: Versions that were current before, the latest last.
        published_at: When each version was published, ISO 8601 in UTC.
    """

    current: _Version | None
    history: tuple[_Version, ...]
    published_at: dict[_Number, str]


_, state_from_json = json_forms(RegistryState)
"""Read what a registry's file says."""
EMPTY_STATE = RegistryState(None, (), {})
"""The state of a registry in which nothing was published."""


class Registry:
    """Bundles under version numbers 1, 2, 3, ...; removed numbers are not used again.

    Attributes:
        folder: Where they are.
        changes: Who changed what: every writer adds a line before it changes anything.
    """

    def __init__(self, folder: Path | str) -> None:
        """Name a folder; it is made when the first bundle is published."""
        self.folder = Path(folder)
        self.changes = ChangeLog(self.folder)

    def versions(self) -> list[int]:
        """Return the versions there are, rising."""
        if not self.folder.is_dir():
            return []
        names = (path.name for path in self.folder.iterdir() if path.is_dir())
        return sorted(int(name) for name in names if name.isascii() and name.isdigit())

    def state(self) -> RegistryState:
        """Return what the registry's file says; nothing, where there is none.

        Raises:
            BundleCorruptError: It can't be read.
        """
        path = self.folder / STATE_NAME
        try:
            check_regular_file(path.resolve(), MAX_MANIFEST_BYTES)
            found: RegistryState = state_from_json(path.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return EMPTY_STATE
        except ValueError as error:
            raise BundleCorruptError(
                f"registry {str(self.folder)!r}: file {STATE_NAME!r} can't be read ({error}); "
                "delete that file alone, and choose a version with 'longtail registry activate'"
            ) from error
        return found

    def current(self) -> int | None:
        """Return the version that `current` names; None before the first one."""
        return self.state().current

    def published_at(self, version: int) -> str | None:
        """Return when a version was published (ISO 8601, UTC), if that is known."""
        return self.state().published_at.get(str(version))

    def resolve(self, version: int | str = CURRENT) -> int:
        """Return the number of a version given as a number or as "current".

        Raises:
            BundleNotFoundError: There is no such version; the message lists those that there are.
        """
        number = self.current() if version == CURRENT else version
        if isinstance(number, str) and number.isascii() and number.isdigit():
            number = int(number)
        if isinstance(number, int) and (self.folder / str(number)).is_dir():
            return number
        if self.folder.is_file():
            raise BundleNotFoundError(
                f"registry {str(self.folder)!r}: is a file, expected a folder; check the path"
            )
        versions = self.versions()
        if not versions:
            advice = "train one with 'longtail train'"
        elif version == CURRENT:
            advice = "choose one with 'longtail registry activate'"
        else:
            advice = "name one of these"
        raise BundleNotFoundError(
            f"registry {str(self.folder)!r}: no version {version!r}; "
            f"there are: {', '.join(map(str, versions)) or 'none'}; {advice}"
        )

    def folder_of(self, version: int | str = CURRENT) -> Path:
        """Return the folder of a version.

        Raises:
            BundleNotFoundError: There is no such version.
        """
        return self.folder / str(self.resolve(version))

    def open(self, version: int | str = CURRENT) -> Bundle:
        """Verify and open a version.

        Raises:
            BundleNotFoundError: There is no such version.
            BundleVersionError: It was written in another format.
            BundleCorruptError: It is not as it was written.
        """
        return open_bundle(self.folder_of(version))

    def check_writable(self) -> None:
        """Refuse a registry in which nothing can be published: before the work, not after it.

        Raises:
            ConfigError: Its folder can't be written to, or holds something else than versions.
            BundleCorruptError: Its file can't be read.
        """
        self.state()
        check_writable_folder(self.folder, "--registry")
        if not self.folder.is_dir() or (self.folder / STATE_NAME).is_file() or self.versions():
            return
        if names := [x for x in visible_names(self.folder) if x != CHANGES_NAME]:
            raise ConfigError(
                f"--registry {str(self.folder)!r}: holds other files ({names[0]!r}) and no "
                "version; expected a registry or an empty folder; choose one"
            )

    def publish(
        self,
        write: Callable[[Path], Manifest],
        *,
        activate: bool = True,
        action: str = "publish",
        check: Callable[[Bundle], object] | None = None,
    ) -> int:
        """Add a bundle under the next number, unless the very same one is there already.

        So a run that was killed while publishing, or that is run again with the same seed, does
        not make a second version of the same bytes.

        Args:
            write: Writes the bundle to the folder that it is given (see `write_bundle`).
            activate: Whether `current` names it then.
            action: What the log of changes calls this.
            check: Gets the bundle before it has a version, and raises where it is unfit.

        Returns:
            The version's number.

        Raises:
            BundleCorruptError: It is unfit; nothing is published.
        """
        with self._locked():
            staged = self.folder / f"{_INCOMING_PREFIX}staged"
            digest = write(staged).digest
            make_read_only(staged)
            before = state = self.state()
            if check is not None:
                try:
                    check(open_bundle(staged))
                except LongtailError as error:
                    shutil.rmtree(staged)
                    raise BundleCorruptError(
                        f"registry {str(self.folder)!r}: nothing is published, and 'current' stays "
                        f"where it is: {error}"
                    ) from error
            known = self._version_with(digest)
            version = known or self._next_number(state)
            if str(version) not in state.published_at:
                now = datetime.now(UTC).isoformat(timespec="seconds")
                state = replace(state, published_at=state.published_at | {str(version): now})
            if activate:
                state = _moved(state, version)
            if state != before or known is None:
                current = (before.current, state.current)
                self.changes.append(action, version, digest, current, None)
            if known is None:
                move(staged, self.folder / str(version))
                sync_folder(self.folder)
            else:
                shutil.rmtree(staged)
                is_moved = before.current != state.current
                moved = f"; current moved from {before.current} to {known}" * is_moved
                logger.warning("the same model as version %d%s", known, moved)
            self._save(state)
        return version

    def activate(
        self,
        version: int,
        *,
        action: str = "activate",
        author: Author | None = None,
        check: Callable[[Bundle], object] = lambda _: None,
    ) -> None:
        """Let `current` name this version, after verifying it.

        Args:
            version: Its number.
            action: What the log of changes calls this.
            author: Who asked for it; None: the user who runs this process.
            check: Gets the version before `current` moves, and raises where it is unfit.

        Raises:
            BundleNotFoundError: There is no such version.
            BundleVersionError: It was written in another format.
            BundleCorruptError: It is not as it was written; `current` stays where it was.
        """
        self.resolve(version)  # before the lock, which would make the folder of the registry
        with self._locked():
            bundle = self.open(version)
            check(bundle)
            digest, state = bundle.manifest.digest, self.state()
            self.changes.append(action, version, digest, (state.current, version), author)
            self._save(_moved(state, version))

    def previous(self) -> int:
        """Return the version that `rollback` would go back to.

        Raises:
            BundleError: `current` never named another version that is still there.
        """
        return self._before(self.state())[-1]

    def rollback(self, *, author: Author | None = None) -> int:
        """Let `current` name the version that it named before, and return that.

        Args:
            author: Who asked for it; None: the user who runs this process.

        Raises:
            BundleError: `current` never named another version that is still there.
        """
        with self._locked():
            state = self.state()
            before = self._before(state)
            digest = self.open(before[-1]).manifest.digest
            current = (state.current, before[-1])
            self.changes.append("rollback", before[-1], digest, current, author)
            self._save(replace(state, current=before[-1], history=tuple(before[:-1])))
        return before[-1]

    def remove(self, version: int) -> None:
        """Delete a version; its number is not used again.

        Raises:
            BundleNotFoundError: There is no such version.
            BundleError: It is the current one.
        """
        self.resolve(version)  # before the lock, which would make the folder of the registry
        with self._locked():
            folder, state = self.folder_of(version), self.state()
            if version == state.current:
                raise BundleError(
                    f"registry {str(self.folder)!r}: version {version} is the current one; "
                    "activate another one first"
                )
            current = (state.current, state.current)
            self.changes.append("remove", version, _digest_of(folder), current, None)
            history = tuple(before for before in state.history if before != version)
            # Also of a version whose writer was killed before it noted it.
            published_at = {str(version): "unknown"} | state.published_at
            self._save(replace(state, history=history, published_at=published_at))
            trash = self.folder / f"{_TRASH_PREFIX}{version}"
            move(folder, trash)  # gone for readers at once, then deleted
            shutil.rmtree(trash)

    def _next_number(self, state: RegistryState) -> int:
        return max([*self.versions(), *map(int, state.published_at)], default=0) + 1

    def _before(self, state: RegistryState) -> list[int]:
        # Return the versions that `current` named before and that are still there: at least one.
        there = self.versions()
        before = [version for version in state.history if version in there]
        if not before:
            raise BundleError(
                f"registry {str(self.folder)!r}: no earlier version to go back to; "
                "choose one with 'longtail registry activate'"
            )
        return before

    def _version_with(self, digest: str) -> int | None:
        for version in self.versions():
            try:
                if read_manifest(self.folder / str(version)).digest == digest:
                    self.open(version)
                    return version
            except BundleError:
                continue  # a broken version is never the same as the one just written
        return None

    def _save(self, state: RegistryState) -> None:
        write_json_durably(self.folder / STATE_NAME, asdict(state))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the writers' lock; what an interrupted writer left behind is deleted."""
        with ExitStack() as stack:
            stack.enter_context(doing("changing the registry", self.folder))
            self.folder.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context((self.folder / ".lock").open("wb"))
            lock(file)
            for path in self.folder.iterdir():
                if not path.name.startswith((_INCOMING_PREFIX, _TRASH_PREFIX)):
                    continue
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink()
            sync_folder(self.folder)
            yield


def _digest_of(folder: Path) -> str | None:
    try:
        return read_manifest(folder).digest
    except BundleError:
        return None


def _moved(state: RegistryState, version: int) -> RegistryState:
    """Return the state with `current` on a version, remembering where it was."""
    if state.current in (None, version):
        return replace(state, current=version)
    assert state.current is not None
    return replace(state, current=version, history=(*state.history, state.current))
