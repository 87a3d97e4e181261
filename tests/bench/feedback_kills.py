"""Kills a process that writes feedback, again and again, and counts what is lost or doubled.

    python tests/bench/feedback_kills.py [--kills 100] [--store FOLDER]

The process writes pairs of entries, eight pairs at a time, and tells which were acknowledged. It is
killed (SIGKILL) after a random number of these and a random time; the next one goes on with the
same store. After each kill, all that was ever acknowledged must be there, once, and of no pair one
entry alone. This is what a crash of the process does; a loss of power is the disk's matter, which
is asked to write (fsync) before each acknowledgement.
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
from collections import Counter
from concurrent.futures import Future
from itertools import count
from pathlib import Path

from machine import begin
from recording import Table, add_json_option, keep

from service.feedback.entries import Entry, Receipt, sha256_of
from service.feedback.store import FeedbackStore, now
from service.feedback.writer import FeedbackWriter

_IN_FLIGHT = 8
_MAX_LINES = 200
_MAX_MORE_S = 0.02


def main() -> int:
    """Kill, look, and print a table; return 1 where anything was lost or doubled."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--store", type=Path, help="an empty folder; else a temporary one")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--write", metavar="NAME", help=argparse.SUPPRESS)
    add_json_option(parser)
    chosen = begin(parser)
    if chosen.write is not None:
        write(chosen.store, chosen.write)
    with tempfile.TemporaryDirectory() as folder:
        store = chosen.store or Path(folder)
        found = kill(store, chosen.kills, random.Random(chosen.seed))  # noqa: S311
    table = Table(dict.fromkeys(found, ".0f"))
    table.add(*found.values())
    keep(chosen.json, {"kills": table}, seeds=[chosen.seed])
    return int(any(found[name] for name in ("lost", "doubled", "halves of pairs")))


def kill(folder: Path, num_kills: int, chance: random.Random) -> dict[str, int]:
    """Return how much was acknowledged and stored, lost and doubled, after so many kills."""
    acknowledged: set[str] = set()
    lost, doubled, halves, stored = 0, 0, 0, 0
    for turn in range(num_kills):
        acknowledged |= acknowledged_before_a_kill(folder, f"t{turn}", chance)
        with FeedbackStore(folder) as store:
            ids = Counter(all_ids(store))
            assert store.counts().entries == ids.total()  # which checks the whole database
        lost += len(acknowledged - ids.keys())
        doubled += sum(number > 1 for number in ids.values())
        halves += sum(number != 2 for number in Counter(x.rpartition("-")[0] for x in ids).values())
        stored = ids.total()
    return {
        "kills": num_kills, "acknowledged": len(acknowledged), "stored": stored, "lost": lost,
        "doubled": doubled, "halves of pairs": halves,
    }  # fmt: skip


def acknowledged_before_a_kill(folder: Path, name: str, chance: random.Random) -> set[str]:
    """Let a process write, kill it, and return the ids that it acknowledged."""
    command = [sys.executable, __file__, "--store", str(folder), "--write", name]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(chance.randrange(1, _MAX_LINES))]
        time.sleep(chance.random() * _MAX_MORE_S)
        process.kill()
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


def write(folder: Path, name: str) -> None:
    """Write pairs of entries, several at a time, until the process is killed."""
    writer = FeedbackWriter(FeedbackStore(folder), max_waiting=1000)
    writer.start()
    waiting: list[Future[list[Receipt]]] = []
    for number in count():
        waiting.append(writer.add([entry(f"{name}-{number}-{part}") for part in "ab"]))
        if len(waiting) == _IN_FLIGHT:
            ids = [receipt.id for receipt in waiting.pop(0).result()]
            os.write(1, (" ".join(ids) + "\n").encode())  # at once, and whole


def entry(name: str) -> Entry:
    """Return an entry with a text of a page or more."""
    text = name * 500
    return Entry(
        name, now(), None, 1, "d", None, text, sha256_of(text),
        accepted=("L1",), rejected=(), added=(),
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
