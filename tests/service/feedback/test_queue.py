"""Which document each annotator gets: leases, what is done, and files that change."""

from __future__ import annotations

import json
import random
from functools import partial

import pytest

from longtail.models.errors import DataError
from longtail.service.errors import FeedbackStoreError, QueueFullError
from longtail.service.feedback import queue as queue_module
from longtail.service.feedback.entries import sha256_of
from longtail.service.feedback.queue import LabelQueue, QueuedDocument
from longtail.service.feedback.store import FILE_NAME, FeedbackStore

LEASE_S = 60.0


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def read(path):
    for text in json.loads(path.read_text()):
        yield QueuedDocument(f"id of {text}", text, sha256_of(text))


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def store(tmp_path):
    with FeedbackStore(tmp_path / "feedback") as store:
        yield store


@pytest.fixture
def make_queue(tmp_path, clock):
    queues = []

    def make(*texts):
        path = tmp_path / "queue.json"
        path.write_text(json.dumps(texts))
        open_store = partial(FeedbackStore, tmp_path / "feedback")
        queues.append(LabelQueue(path, read, open_store, LEASE_S, clock))
        return queues[-1]

    yield make
    for queue in queues:
        queue.close()


def text_of(queue, annotator, skip=None):
    document = queue.next(annotator, skip).result().document
    return document and document.text


def counts_of(queue, annotator):
    turn = queue.next(annotator).result()
    return turn.total, turn.done, turn.taken


def test_two_annotators_never_have_the_same_text(make_queue):
    queue = make_queue("a", "b")
    assert [text_of(queue, who) for who in ("x", "y", "z", "x", "y")] == ["a", "b", None, "a", "b"]
    assert counts_of(queue, "z") == (2, 0, 2)
    assert counts_of(queue, "x") == (2, 0, 1)


def test_a_lease_ends_and_asking_begins_it_anew(make_queue, clock):
    queue = make_queue("a", "b")
    assert text_of(queue, "x") == "a"
    clock.now = LEASE_S - 1
    assert (text_of(queue, "x"), text_of(queue, "y")) == ("a", "b")
    clock.now += LEASE_S - 0.5
    assert text_of(queue, "z") is None
    clock.now += 0.5
    assert text_of(queue, "z") == "a"
    assert text_of(queue, "y") == "b"  # nobody took it
    assert text_of(queue, "x") is None


def test_what_was_judged_is_not_offered_again_whoever_judged_it(make_queue, store, make_entry):
    queue = make_queue("a", "b", "c", "d")
    assert text_of(queue, "x") == "a"
    store.append([[make_entry("1", "a"), make_entry("2", "b", document_id="id of c")]])
    assert text_of(queue, "x") == "c"  # the second entry is about the text of b
    store.append([[make_entry("3", None, document_id="id of c")]])
    assert text_of(queue, "x") == "d"
    assert counts_of(queue, "y") == (4, 3, 1)
    assert text_of(make_queue("a", "b", "c", "d"), "z") == "d"  # after a restart, too


def test_what_is_deleted_waits_again(make_queue, store, make_entry):
    queue = make_queue("a", "b")
    store.append([[make_entry("1", "a"), make_entry("2", "a"), make_entry("3", "b")]])
    assert text_of(queue, "x") is None
    store.delete("1")
    assert text_of(queue, "x") is None
    store.delete("2")
    assert text_of(queue, "x") == "a"


def test_what_is_set_aside_comes_last_and_only_its_holder_can_do_that(make_queue):
    queue = make_queue("a", "b", "c")
    assert text_of(queue, "x") == "a"
    assert text_of(queue, "y", skip="id of a") == "b"
    assert text_of(queue, "x", skip="id of c") == "a"
    assert text_of(queue, "x", skip="id of a") == "c"
    assert text_of(queue, "z") == "a"
    assert text_of(queue, "z", skip="id of a") == "a"  # nothing else is free


def test_another_file_is_read_and_who_has_a_text_keeps_it(make_queue, tmp_path, caplog):
    queue = make_queue("a", "b")
    assert (text_of(queue, "x"), text_of(queue, "y")) == ("a", "b")
    (tmp_path / "queue.json").write_text('["c", "b", "new"]')
    assert [text_of(queue, who) for who in ("y", "x", "z")] == ["b", "c", "new"]
    (tmp_path / "queue.json").unlink()
    queue._file._parse = refuse
    assert text_of(queue, "y") == "b"
    assert "the queue stays as it was" in caplog.text


def refuse(path):
    raise DataError(f"{path} is no queue")


def test_another_store_is_read_from_its_beginning(make_queue, store, make_entry, tmp_path):
    queue = make_queue("a", "b")
    store.append([[make_entry("1", "a")], [make_entry("2", "other")]])
    assert text_of(queue, "x") == "b"
    store.close()
    for path in (tmp_path / "feedback").iterdir():
        path.unlink()
    store.append([[make_entry("1", "b")]])
    assert text_of(queue, "y") == "a"


def test_a_store_that_fails_is_told(make_queue, store, make_entry, tmp_path):
    queue = make_queue("a")
    (tmp_path / "feedback").mkdir(exist_ok=True)
    (tmp_path / "feedback" / FILE_NAME).write_bytes(b"no database " * 1000)
    with pytest.raises(FeedbackStoreError, match="is damaged"):
        text_of(queue, "x")
    (tmp_path / "feedback" / FILE_NAME).unlink()
    assert text_of(queue, "x") == "a"


def test_too_many_that_wait_are_refused(make_queue, monkeypatch):
    monkeypatch.setattr(queue_module, "MAX_WAITING", 0)
    queue = make_queue("a")
    with pytest.raises(QueueFullError, match="wait for a text"):
        queue.next("x")
    monkeypatch.setattr(queue_module, "MAX_WAITING", 1)
    assert [text_of(queue, "x") for _ in range(3)] == ["a"] * 3


def test_it_does_what_a_plain_list_would(make_queue, store, make_entry, clock):
    """A random history against a list of [text, holder, end of the lease, is done]."""
    chance = random.Random(7)  # noqa: S311
    texts = [f"text {n}" for n in range(12)]
    queue, plain = make_queue(*texts), [[text, None, 0.0, False] for text in texts]
    for step in range(400):
        who = chance.choice("vwxyz")
        clock.now += chance.choice((0, 1, 40))
        mine = next((each for each in plain if each[1] == who and not each[3]), None)
        action = chance.random()
        skip = None
        if mine is not None and action < 0.3:
            skip = f"id of {mine[0]}"
            plain.remove(mine)
            plain.append([mine[0], None, 0.0, False])
            mine = None
        elif mine is not None and action < 0.35:
            store.append([[make_entry(f"entry {step}", mine[0])]])
            mine[1:] = [None, 0.0, True]
            mine = None
        if mine is None:
            mine = next((x for x in plain if not x[3] and x[2] <= clock.now), None)
        if mine is not None:
            mine[1:3] = [who, clock.now + LEASE_S]
        assert text_of(queue, who, skip) == (mine and mine[0])
    assert sum(each[3] for each in plain) > 3
