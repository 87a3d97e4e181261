"""Feedback from files, by a person at a shell: there and back, and onto a disk that is full."""

import json

import pytest

from longtail.models.bundle.registry import Registry


@pytest.fixture
def said(place):
    """Writes entries about a label of the model to a file; returns its name."""
    label_id = Registry(place / "registry").open().catalogue[0].id

    def write(name: str, number: int, length: int) -> str:
        lines = [
            json.dumps({"id": f"{name}-{each}", "text": "x" * length, "accepted": [label_id]})
            for each in range(number)
        ]
        (place / name).write_text("\n".join(lines))
        return name

    return write


def test_there_and_back(place, run, said):
    store = ["--feedback", "kept"]
    assert run("feedback", "import", said("said", 3, 10), *store).status == 0
    assert run("feedback", "delete", "said-1", *store).status == 0
    assert run("feedback", "export", "out.jsonl", *store).status == 0
    lines = [json.loads(line) for line in (place / "out.jsonl").read_text().splitlines()]
    assert [line["id"] for line in lines] == ["said-0", "said-2", "said-1"]


def test_what_was_said_is_learned_and_rolled_back(place, run):
    """From the folder that keeps it, and from an export of that."""
    label_id = Registry(place / "registry").open().catalogue[0].id
    entry = {
        "text": "Duties on imports of zebra hides", "added": [label_id],
        "proposed": [{"name": "zebra hides"}],
    }  # fmt: skip
    (place / "said.jsonl").write_text(json.dumps(entry) + "\n")
    store = ["--feedback", "kept"]
    assert run("feedback", "import", "said.jsonl", *store, "--texts").status == 0
    learned = run("learn", "data", *store)
    assert learned.status == 0, learned
    assert "Version 2 of 'registry' is learned from version 1, in " in learned.out
    assert "Documents: 1 new, 0 corrected" in learned.out
    assert "Labels: 1 new." in learned.out
    assert run("feedback", "export", "out.jsonl", *store).status == 0
    again = run("learn", "data", "--feedback", "out.jsonl")
    assert "Nothing is new: version 2 of 'registry' knows all 1 entries" in again.out
    assert Registry(place / "registry").open().catalogue.row_of_id("new:zebra-hides") is not None
    assert run("registry", "rollback").status == 0
    assert Registry(place / "registry").current() == 1


def test_a_full_disk_is_told_and_keeps_what_was_there(place, run, said, disk):
    store = ["--feedback", disk("1m") / "kept"]
    assert run("feedback", "import", said("few", 5, 100), *store, "--texts").status == 0
    outcome = run("feedback", "import", said("many", 400, 5000), *store, "--texts")
    assert outcome.status == 1 and "full" in outcome.last_line
    assert "5 entries" in run("feedback", "export", "out.jsonl", *store).out
    assert run("feedback", "import", said("few", 5, 100), *store, "--texts").status == 0
