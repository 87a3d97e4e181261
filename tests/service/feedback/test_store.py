"""What is acknowledged stays, once and in order, whatever database keeps it."""

import json
import random
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from longtail.service.errors import FeedbackConflictError
from longtail.service.feedback.store import FeedbackStore, Receipt

KILLS = Path(__file__).parents[2] / "bench" / "feedback_kills.py"


def ids_in(store):
    return [record.id for record in store.page(0, 1000)]


def test_an_entry_comes_back_as_it_was(store, make_entry):
    entry = make_entry("a", "Öl \N{OLIVE}", rejected=("L2",), who="key", document_id="d 1")
    assert store.append([[entry]]) == [[Receipt("a", is_new=True)]]
    (record,) = store.page(0, 10)
    assert record.content == json.loads(entry.to_json())
    assert json.loads(record.to_line()) == {"sequence": 1, "id": "a", **record.content}


def test_the_same_again_is_acknowledged_and_stored_once(store, make_entry):
    store.append([[make_entry("a", accepted=("L1", "L2"))]])
    again = make_entry("a", accepted=("L2", "L1"), version=2, who="other")
    assert store.append([[again, again]]) == [[Receipt("a", is_new=False)] * 2]
    assert ids_in(store) == ["a"]


@pytest.mark.parametrize(
    "changes", [{"accepted": ("L2",)}, {"rejected": ("L2",)}, {"text_sha256": "0"}]
)
def test_other_content_under_an_id_is_refused_with_all_its_group(store, make_entry, changes):
    store.append([[make_entry("a")]])
    groups = [[make_entry("b"), make_entry("a", **changes)], [make_entry("c")]]
    refused, taken = store.append(groups)
    assert isinstance(refused, FeedbackConflictError)
    assert taken == [Receipt("c", is_new=True)]
    assert ids_in(store) == ["a", "c"]


def test_pages_follow_each_other_and_show_deletions_last(store, make_entry):
    store.append([[make_entry(f"e{number}") for number in range(5)]])
    assert [record.id for record in store.page(2, 2)] == ["e2", "e3"]
    assert store.delete("e1")
    (deleted,) = store.page(5, 10)
    assert (deleted.id, set(deleted.content)) == ("e1", {"deleted_at"})


def test_a_deleted_entry_leaves_its_id_and_never_comes_back(store, make_entry):
    store.append([[make_entry("a"), make_entry("b")]])
    assert store.delete("a") and store.delete("a") and not store.delete("nothing")
    (refused,) = store.append([[make_entry("a")]])
    assert isinstance(refused, FeedbackConflictError) and "was deleted" in str(refused)
    kept, deleted = store.page(0, 10)
    assert (kept.id, deleted.id, deleted.sequence) == ("b", "a", 3)
    assert set(deleted.content) == {"deleted_at"}


def test_who_writes_at_once_takes_each_id_once_and_readers_miss_nothing(place, make_entry):
    num_writers, num_ids = 4, 60

    def write(seed):
        chance, num_new = random.Random(seed), 0  # noqa: S311
        with FeedbackStore(place, wait_s=60) as store:
            for _ in range(15):
                ids = [f"e{chance.randrange(num_ids)}" for _ in range(4)]
                for result in store.append([[make_entry(name)] for name in ids]):
                    num_new += result[0].is_new
        return num_new

    def read(writers):
        seen = []
        with FeedbackStore(place, wait_s=60) as store:
            is_last = False
            while True:
                records = store.page(seen[-1][0] if seen else 0, 3)
                seen += [(record.sequence, record.id) for record in records]
                if is_last and not records:
                    return seen
                is_last = all(writer.done() for writer in writers)

    with ThreadPoolExecutor() as pool:
        writers = [pool.submit(write, seed) for seed in range(num_writers)]
        seen = read(writers)
    ids = [name for _, name in seen]
    assert len(set(ids)) == len(ids) == sum(writer.result() for writer in writers)
    assert [sequence for sequence, _ in seen] == list(range(1, len(ids) + 1))


@pytest.mark.slow
def test_killed_processes_lose_and_double_nothing(place):
    command = [sys.executable, str(KILLS), "--kills", "3", "--store", str(place)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done
    kills, acknowledged, stored, *wrong = map(int, re.findall(r"\d+", done.stdout.split("|\n")[-2]))
    assert (kills, wrong) == (3, [0, 0, 0]) and 6 <= acknowledged <= stored
