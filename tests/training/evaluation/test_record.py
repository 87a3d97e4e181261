"""Records of measurements: figures beside what it takes to repeat them."""

import subprocess
from datetime import date
from pathlib import Path

from longtail.models.processor import FLAGS
from longtail.training.evaluation.record import (
    find_commit,
    make_record,
)


def git(folder: Path, *arguments: str) -> None:
    own = ["-c", "user.name=Test", "-c", "user.email=test@example.org"]
    command = ["git", "-C", str(folder), *own, *arguments]
    subprocess.run(command, check=True, capture_output=True)


def test_a_record_says_what_measured_when_and_where(tmp_path):
    record = make_record({"P@1": 0.5}, seeds=range(2), command="longtail evaluate x")
    assert list(record) == ["command", "commit", "date", "processor", "seeds", "figures"]
    assert record["command"] == "longtail evaluate x"
    assert date.fromisoformat(record["date"])
    assert record["processor"]["cores"] >= 1
    assert set(record["processor"]["flags"]) <= set(FLAGS)
    assert (record["seeds"], record["figures"]) == ([0, 1], {"P@1": 0.5})


def test_the_commit_is_that_of_the_source(tmp_path):
    assert find_commit(tmp_path) is None
    git(tmp_path, "init")
    (tmp_path / "file").write_text("a")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "-m", "first")
    clean = find_commit(tmp_path)
    assert clean is not None
    assert int(clean, 16)
    (tmp_path / "file").write_text("b")
    assert find_commit(tmp_path) == f"{clean}-dirty"
    inner = tmp_path / "inner"
    inner.mkdir()
    assert find_commit(inner) is None
