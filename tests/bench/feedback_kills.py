"""Kills processes that write feedback, again and again, and counts what is lost or doubled.

    python tests/bench/feedback_kills.py [--kills 100] [--store FOLDER] [--writers 1]

A process writes pairs of entries, eight pairs at a time, and tells which were acknowledged. It is
killed (SIGKILL) after a random number of these and a random time; the next one goes on with the
same store. After each kill, all that was ever acknowledged must be there, once, and of no pair one
entry alone. This is what a crash of the process does; a loss of power is the disk's matter, which
is asked to write (fsync) before each acknowledgement.

What fails meanwhile is sent again under its id, as clients do.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from concurrent.futures import Future
from itertools import count

from machine import begin
from recording import Table, add_json_option, keep

from longtail.models.feedback import Entry, sha256_of
from longtail.service.errors import FeedbackStoreError
from longtail.service.feedback.store import FeedbackStore, Receipt, now
from longtail.service.feedback.writer import FeedbackWriter

_IN_FLIGHT = 8
_MAX_LINES = 200
_MAX_MORE_S = 0.02


def main() -> int:
    """Kill, look, and print a table; return 1 where anything was lost or doubled."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--store", help="an empty folder; else a temporary one")
    parser.add_argument("--writers", type=int, default=1, help="processes that write at a time")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--write", metavar="NAME", help=argparse.SUPPRESS)
    add_json_option(parser)
    chosen = begin(parser)
    if chosen.write is not None:
        write(chosen.store, chosen.write)
    with tempfile.TemporaryDirectory() as folder:
        place = chosen.store or folder
        chance = random.Random(chosen.seed)  # noqa: S311
        found = kill(place, chosen.kills, chance, chosen.writers)
    table = Table(dict.fromkeys(found, ".0f"))
    table.add(*found.values())
    keep(chosen.json, {"kills": table}, seeds=[chosen.seed])
    return int(any(found[name] for name in ("lost", "doubled", "halves of pairs")))


def kill(place: str, num_kills: int, chance: random.Random, num_writers: int) -> dict[str, int]:
    """Return how much was acknowledged and stored, lost and doubled, after some kills."""
    acknowledged: set[str] = set()
    lost, doubled, halves, stored = 0, 0, 0, 0
    for turn in range(num_kills):
        names = [f"t{turn}w{number}" for number in range(num_writers)]
        acknowledged |= acknowledged_before_a_kill(place, names, chance)
        with FeedbackStore(place) as store:
            ids = Counter(all_ids(store))
        lost += len(acknowledged - ids.keys())
        doubled += sum(number > 1 for number in ids.values())
        halves += sum(number != 2 for number in Counter(x.rpartition("-")[0] for x in ids).values())
        stored = ids.total()
    return {
        "kills": num_kills * num_writers, "acknowledged": len(acknowledged), "stored": stored,
        "lost": lost, "doubled": doubled, "halves of pairs": halves,
    }  # fmt: skip


def acknowledged_before_a_kill(place: str, names: list[str], chance: random.Random) -> set[str]:
    """Let processes write, kill them, and return the ids that they acknowledged."""
    command = [sys.executable, __file__, "--store", place, "--write"]
    processes = [subprocess.Popen([*command, name], stdout=subprocess.PIPE) for name in names]
    lines = []
    for _ in range(chance.randrange(1, _MAX_LINES)):
        lines += [process.stdout.readline() for process in processes if process.stdout]
    time.sleep(chance.random() * _MAX_MORE_S)
    for process in processes:
        process.kill()
    for process in processes:
        with process:
            assert process.stdout is not None
            lines += process.stdout.readlines()
        assert process.returncode == -signal.SIGKILL
    return {name for line in lines if line.endswith(b"\n") for name in line.decode().split()}


def all_ids(store: FeedbackStore) -> list[str]:
    """Return the ids of all records."""
    ids: list[str] = []
    last = 0
    while records := store.page(last, 1000):
        ids += [record.id for record in records]
        last = records[-1].sequence
    return ids


def write(place: str, name: str) -> None:
    """Write pairs of entries, several at a time, until the process is killed."""
    writer = FeedbackWriter(FeedbackStore(place), max_waiting=1000)
    writer.start()
    waiting: deque[tuple[list[Entry], Future[list[Receipt]]]] = deque()
    for number in count():
        pair = [entry(f"{name}-{number}-{part}") for part in "ab"]
        waiting.append((pair, writer.add(pair)))
        if len(waiting) == _IN_FLIGHT:
            ids = ids_when_acknowledged(writer, *waiting.popleft())
            os.write(1, (" ".join(ids) + "\n").encode())  # at once, and whole


def ids_when_acknowledged(
    writer: FeedbackWriter, pair: list[Entry], done: Future[list[Receipt]]
) -> list[str]:
    """Return the ids of a pair when it is on the disk; it is sent again for as long as it fails."""
    while True:
        try:
            return [receipt.id for receipt in done.result()]
        except FeedbackStoreError:
            time.sleep(_MAX_MORE_S)
            done = writer.add(pair)


def entry(name: str) -> Entry:
    """Return an entry with a text of a page or more."""
    text = name * 500
    return Entry(
        id=name, given_at=now(), version=1, model_digest="d", text=text,
        text_sha256=sha256_of(text), accepted=("L1",),
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
