"""A person at a shell: an empty folder, a corpus, a registry with a model, and the command."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import longtail

MOUNT = "/bin/mount"


@dataclass(frozen=True)
class Outcome:
    """How a command ended, and all that a person saw of it."""

    status: int
    out: str
    err: str

    @property
    def last_line(self) -> str:
        return self.err.rstrip().splitlines()[-1] if self.err.strip() else ""


Run = Callable[..., Outcome]


@pytest.fixture(autouse=True)
def _a_clean_environment(monkeypatch):
    for name in os.environ:
        if name.startswith("LONGTAIL_"):
            monkeypatch.delenv(name)
    # Commands set these; what is set here is put back.
    for name in ("TRANSFORMERS_VERBOSITY", "HF_HUB_DISABLE_PROGRESS_BARS", "TRANSFORMERS_NO_TQDM"):
        monkeypatch.setenv(name, os.environ.get(name, ""))


@pytest.fixture
def place(tmp_path, tiny_corpus, trained_sparse, monkeypatch):
    """The current folder: `data`, `registry`, documents, and all sorts of things that are none."""
    here = tmp_path / "place"
    here.mkdir()
    shutil.copytree(tiny_corpus, here / "data")
    shutil.copytree(trained_sparse.registry.folder, here / "registry")
    (here / "docs.jsonl").write_text('{"text": "imports of fish"}\n{"text": "olive oil"}\n')
    (here / "binary").write_bytes(bytes(range(256)) * 8)
    # By a link, so that a command that replaces it leaves the machine's device alone.
    (here / "device").symlink_to("/dev/full")
    (here / "empty").mkdir()
    (here / "full").mkdir()
    (here / "full" / "letter.txt").write_text("Dear reader")
    monkeypatch.chdir(here)
    return here


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs the command as the shell does, in this process; no journey ever sees a traceback."""

    def run_command(*words: str | Path) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["longtail", *map(str, words)])
        capsys.readouterr()
        try:
            longtail.main()
            status = 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
        seen = capsys.readouterr()
        return checked(Outcome(status, seen.out, seen.err), words)

    return run_command


def checked(outcome: Outcome, words: object) -> Outcome:
    """What holds for every command: no traceback, a known status, and a reason for a failure."""
    assert "Traceback" not in outcome.out + outcome.err, (words, outcome)
    assert "unexpected" not in outcome.last_line, (words, outcome)
    assert outcome.status in {0, 1, 2, 130, 141, -9}, (words, outcome)
    if outcome.status in {1, 2, 130}:
        assert outcome.err.strip(), (words, outcome)
    return outcome


@pytest.fixture
def disk(tmp_path):
    """Makes small disks, which can be read-only; skips where nobody may mount one."""
    mounted: list[Path] = []

    def make(size: str = "2m", *, content: Path | None = None, read_only: bool = False) -> Path:
        folder = tmp_path / f"disk{len(mounted)}"
        folder.mkdir()
        words = [MOUNT, "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
        if shutil.which(MOUNT) is None or subprocess.run(words, check=False).returncode:
            pytest.skip("nobody may mount a file system here")
        mounted.append(folder)
        if content is not None:
            shutil.copytree(content, folder / content.name)
        if read_only:
            subprocess.run([MOUNT, "-o", "remount,ro", str(folder)], check=True)
        return folder

    yield make
    for folder in mounted:
        subprocess.run(["/bin/umount", str(folder)], check=True)
