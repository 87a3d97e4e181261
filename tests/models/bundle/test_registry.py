"""The registry: numbers, the alias, and what is left when a writer is stopped at any moment."""

import json
import os
import pwd
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from longtail.models.bundle.bundle import write_bundle
from longtail.models.bundle.manifest import Manifest
from longtail.models.bundle.registry import Author, Registry
from longtail.models.errors import BundleCorruptError, BundleError, BundleNotFoundError, ConfigError
from longtail.models.files import durable
from longtail.models.labels.catalogue import Label, LabelCatalogue

PUBLISH = """
import os, signal, sys
from pathlib import Path
from longtail.models.bundle.bundle import write_bundle
from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.models.bundle.manifest import Manifest
from longtail.models.bundle.registry import Registry

folder, name, step = sys.argv[1:]

def kill_at(module, attribute, nth):
    original, calls = getattr(module, attribute), []
    def stop(*args, **kwargs):
        calls.append(args)
        if len(calls) == nth:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args, **kwargs)
    setattr(module, attribute, stop)

def write(path):
    return write_bundle(
        path,
        manifest=Manifest(1, 1, None, ("s",), "s", {"name": name}, "f", {}),
        catalogue=LabelCatalogue([Label("a", "A")]),
        tensors={}, texts={"note.json": name}, encoder_folder=Path(folder).parent / "encoder",
    )

if step:
    where, nth = step.split(":")
    kill_at({"fsync": os, "replace": Path}[where], where, int(nth))
print(Registry(folder).publish(write))
"""


class Workplace:
    """A registry, and bundles that differ by a name only."""

    def __init__(self, folder: Path) -> None:
        self.encoder = folder / "encoder"
        self.encoder.mkdir()
        (self.encoder / "config.json").write_text("{}")
        self.registry = Registry(folder / "registry")

    def publish(self, name: str, *, activate: bool = True) -> int:
        def write(folder: Path) -> Manifest:
            return write_bundle(
                folder, manifest=Manifest(1, 1, None, ("s",), "s", {"name": name}, "f", {}),
                catalogue=LabelCatalogue([Label("a", "A")]), tensors={}, texts={"note.json": name},
                encoder_folder=self.encoder,
            )  # fmt: skip

        return self.registry.publish(write, activate=activate)

    def in_process(self, name: str, kill_at: str = "") -> subprocess.Popen[str]:
        """Publish in another process, which is killed before the named call (such as fsync:2)."""
        command = [sys.executable, "-c", PUBLISH, str(self.registry.folder), name, kill_at]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def name_of(self, version: int | str) -> str:
        return self.registry.open(version).text("note.json")

    def hidden(self) -> list[str]:
        return sorted(p.name for p in self.registry.folder.iterdir() if p.name.startswith("."))


@pytest.fixture
def place(tmp_path):
    return Workplace(tmp_path)


def test_bundles_are_numbered_from_one_and_the_last_is_current(place):
    assert [place.publish("a"), place.publish("b")] == [1, 2]
    assert place.registry.versions() == [1, 2]
    assert place.registry.current() == 2
    assert [place.name_of(1), place.name_of("current"), place.name_of("2")] == ["a", "b", "b"]


def test_every_change_is_in_the_log_with_who_made_it(place):
    place.publish("a")
    place.publish("b", activate=False)
    place.publish("b", activate=False)  # nothing changes
    registry, me = place.registry, pwd.getpwuid(os.getuid()).pw_name
    registry.activate(2, action="promote", author=Author(key="ops", request_id="r1"))
    digest = registry.open(2).manifest.digest
    registry.rollback()
    registry.remove(2)
    found = registry.changes.entries()
    assert [(x["action"], x["version"], x["from"], x["to"]) for x in found] == [
        ("publish", 1, None, 1),
        ("publish", 2, 1, 1),
        ("promote", 2, 1, 2),
        ("rollback", 1, 2, 1),
        ("remove", 2, 1, 1),
    ]
    assert [x.get("user") for x in found] == [me, me, None, me, me]
    assert (found[2]["key"], found[2]["request_id"]) == ("ops", "r1")
    assert found[2]["digest"] == found[4]["digest"] == digest
    assert all(x["at"].endswith("+00:00") for x in found)


def test_nothing_changes_where_the_log_cannot_be_written(place):
    place.publish("a")
    place.publish("b")
    place.registry.changes.path.unlink()
    place.registry.changes.path.mkdir()
    for change in (lambda: place.registry.activate(1), lambda: place.publish("c")):
        with pytest.raises(IsADirectoryError):
            change()
    assert (place.registry.current(), place.registry.versions()) == (2, [1, 2])


def test_versions_are_sorted_as_numbers_and_other_names_are_no_versions(place):
    for name in "abcdefghijk":
        place.publish(name)
    for name in ("notes", "-1", "x2", "²"):
        (place.registry.folder / name).mkdir()
    (place.registry.folder / "77").write_text("a file")
    assert place.registry.versions() == list(range(1, 12))


def test_the_same_bundle_published_twice_is_one_version_and_said_so(place, caplog):
    place.publish("a")
    place.publish("b")
    time = place.registry.published_at(1)
    assert not caplog.messages
    assert place.publish("a") == place.publish("a") == 1
    moved = "the same model as version 1; current moved from 2 to 1"
    assert caplog.messages == [moved, "the same model as version 1"]
    assert place.registry.versions() == [1, 2] and place.registry.current() == 1
    assert place.registry.published_at(1) == time and ".incoming-staged" not in place.hidden()


@pytest.mark.parametrize("version", [3, "3", "newest", "../1", "", "1/.", "-1", "²"])
def test_an_unknown_version_is_refused_with_those_that_there_are(place, version):
    place.publish("a")
    place.publish("b")
    with pytest.raises(BundleNotFoundError, match=r"no version .*; there are: 1, 2;"):
        place.registry.resolve(version)


def test_an_empty_registry_says_how_to_fill_it_and_is_not_made(place):
    registry = place.registry
    assert registry.versions() == [] and registry.current() is None
    with pytest.raises(
        BundleNotFoundError, match="'current'; there are: none; train one with 'longtail train'"
    ):
        registry.open()
    for change in (registry.activate, registry.remove):
        with pytest.raises(BundleNotFoundError):
            change(1)
    assert not registry.folder.exists()


def test_rollback_goes_back_step_by_step_and_then_says_so(place):
    for name in "abc":
        place.publish(name)
    assert [place.registry.rollback(), place.registry.rollback()] == [2, 1]
    assert place.registry.current() == 1
    with pytest.raises(BundleError, match=r"no earlier version .* 'longtail registry activate'"):
        place.registry.rollback()


def test_rollback_skips_versions_that_were_removed(place):
    for name in "abc":
        place.publish(name)
    place.registry.remove(2)
    assert place.registry.rollback() == 1


def test_rollback_refuses_a_corrupt_version_and_stays(place):
    place.publish("a")
    place.publish("b")
    (place.registry.folder / "1" / "note.json").unlink()
    with pytest.raises(BundleCorruptError):
        place.registry.rollback()
    assert place.registry.current() == 2


def test_the_current_version_is_not_removed(place):
    place.publish("a")
    with pytest.raises(BundleError, match="version 1 is the current one; activate another"):
        place.registry.remove(1)
    assert place.name_of(1) == "a"


def test_a_removed_number_is_not_used_again_even_if_its_publishing_was_cut_short(
    place, monkeypatch
):
    place.publish("a")
    with monkeypatch.context() as patch:
        patch.setattr(Registry, "_save", lambda self, state: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            place.publish("b")
    place.registry.remove(2)
    assert place.publish("c") == 3


UNREADABLE_STATES = [
    "", "{", "[]", "null", "{}", '{"current": 1}', '{"current": 1, "history": 3}', "\xff",
    "[" * 100_000,
    *(
        f'{{"current": {current}, "history": {history}, "published_at": {published}}}'
        for current, history, published in [
            ('"1"', "[]", "{}"), ("true", "[]", "{}"), ("1.5", "[]", "{}"), ("0", "[]", "{}"),
            ("1", '["1"]', "{}"), ("1", "[-1]", "{}"), ("1", "[]", "[]"), ("1", "[]", '{"a": "b"}'),
            ("1", "[]", '{"1": 3}'), (10**300, "[]", "{}"), (9 * 10**18 + 1, "[]", "{}"),
            ("1", f"[{10**19}]", "{}"), ("1", "[]", f'{{"{"9" * 4000}": "now"}}'),
        ]
    ),
]  # fmt: skip


@pytest.mark.parametrize("text", UNREADABLE_STATES, ids=lambda text: text[:60])
def test_an_unreadable_state_is_told_with_the_way_out(place, text):
    place.publish("a")
    path = place.registry.folder / "registry.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(
        BundleCorruptError, match=r"file 'registry\.json' can't be read .* delete that file alone"
    ):
        place.registry.current()
    path.unlink()
    place.registry.activate(1)
    assert place.name_of("current") == "a"


def test_what_a_killed_writer_left_is_no_version_and_the_next_writer_deletes_it(place):
    place.publish("a")
    for name in (".incoming-staged", ".incoming-.incoming-staged-1", ".removed-7"):
        (place.registry.folder / name / "encoder").mkdir(parents=True)
    (place.registry.folder / ".incoming-registry.json-1").write_text("{")
    assert place.registry.versions() == [1]
    assert place.publish("b") == 2
    assert place.hidden() == [".lock"]


STEPS = [(os, "fsync", n) for n in range(1, 13)] + [
    (Path, "replace", 1), (Path, "replace", 2), (Path, "replace", 3)
]  # fmt: skip


@pytest.mark.parametrize(("module", "attribute", "nth"), STEPS)
def test_a_publishing_that_fails_at_any_step_leaves_a_registry_that_works(
    place, module, attribute, nth, monkeypatch
):
    place.publish("a")
    original, calls = getattr(module, attribute), []

    def fail(*args: object) -> object:
        calls.append(args)
        if len(calls) == nth:
            raise OSError("disk full")
        return original(*args)

    with monkeypatch.context() as patch:
        patch.setattr(module, attribute, fail)
        try:
            place.publish("b")
        except OSError:
            assert place.registry.current() in (1, 2)
    assert place.name_of("current") in ("a", "b")
    assert place.publish("b") == 2 and place.name_of("current") == "b"


@pytest.mark.parametrize("kill_at", ["fsync:2", "fsync:6", "replace:1", "replace:2", "replace:3"])
def test_a_writer_killed_while_publishing_leaves_a_registry_that_works(place, kill_at):
    place.publish("a")
    process = place.in_process("b", kill_at)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert place.name_of("current") == "a"
    assert all(place.name_of(version) for version in place.registry.versions())
    assert place.publish("b") == 2 and place.hidden() == [".lock"]


def test_two_processes_publishing_at_once_get_different_numbers(place):
    processes = [place.in_process(name) for name in "ab"]
    printed = [process.communicate(timeout=60)[0].strip() for process in processes]
    assert sorted(printed) == ["1", "2"]
    assert [place.name_of(version) for version in printed] == ["a", "b"]


def run_together(*calls: Callable[[], object]) -> None:
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)


def test_a_reader_always_sees_a_whole_current_version(place):
    place.publish("a")
    seen, is_done = set(), threading.Event()

    def read() -> None:
        while not is_done.is_set():
            seen.add(place.name_of("current"))

    def write() -> None:
        for name in "bcdef":
            place.publish(name)
        is_done.set()

    run_together(read, write)
    assert seen <= set("abcdef") and seen
    state = json.loads((place.registry.folder / "registry.json").read_text())
    assert state["current"] == 6 and state["history"] == [1, 2, 3, 4, 5]


def test_a_folder_of_other_files_is_no_registry_to_publish_in(tmp_path):
    (tmp_path / "train.jsonl").write_text("{}")
    with pytest.raises(ConfigError, match=r"holds other files \('train\.jsonl'\) and no version"):
        Registry(tmp_path).check_writable()


def test_files_of_a_version_are_read_only_and_its_folders_are_not(place, monkeypatch):
    monkeypatch.setattr("longtail.models.bundle.registry.make_read_only", durable.make_read_only)
    place.publish("a")
    folder = place.registry.folder_of(1)
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.rglob("*")}
    assert modes.pop("encoder") & 0o200
    assert modes.keys() >= {"manifest.json", "labels.jsonl", "note.json", "config.json"}
    assert not any(mode & 0o222 for mode in modes.values())
    place.publish("b")
    place.registry.remove(1)
    assert place.registry.versions() == [2]
