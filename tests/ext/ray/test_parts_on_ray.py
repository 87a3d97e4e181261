"""`longtail predict --engine ray` over Parquet parts."""

import os
import re
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

import longtail
from longtail.ext.ray import answering
from longtail.ext.ray.answering import answer_on_workers
from longtail.extensions import engine_named
from tests.service.offline.test_parts import contents

pytestmark = pytest.mark.filterwarnings("ignore:.*Ray:FutureWarning")


class FakePool:
    """Stands in for Ray's pool of actors: everything is done here."""

    def __init__(self, actors):
        self._actors = actors

    def map_unordered(self, call, names):
        for number, name in reversed(list(enumerate(names))):
            yield call(self._actors[number % len(self._actors)], name)


def test_workers_of_a_cluster_write_the_same_files(parts, place, monkeypatch):
    made = []

    def start(*given):
        def remote(kind):
            def make(*asked):
                made.append(kind(*asked))
                return SimpleNamespace(answer=SimpleNamespace(remote=made[-1].answer))

            return SimpleNamespace(remote=make)

        pool = SimpleNamespace(ActorPool=FakePool)
        return SimpleNamespace(remote=lambda **_: remote, util=pool)

    monkeypatch.setattr(answering, "start_ray", start)
    parts().predict()
    expected = contents(place)
    place.files.rm(f"{place.root}/out", recursive=True)
    parts().predict(engine_named("ray").answers_parts(2, 1, "cpu"))
    assert (contents(place), len(made)) == (expected, 2)


@pytest.mark.ray
@pytest.mark.parametrize("place", ["local"], indirect=True)
def test_killing_a_worker_costs_its_part(ray_cluster, parts, place, monkeypatch):
    monkeypatch.undo()  # workers have batches of the usual size
    parts().predict()
    expected = contents(place)
    place.files.rm(f"{place.root}/out", recursive=True)
    killed = []

    def answer(asked, names):
        for record in answer_on_workers(2, 1, "cpu", asked, names):
            if not killed:
                killed.append(worker_pid())
                os.kill(killed[0], signal.SIGKILL)
            yield record

    parts().predict(answer)
    assert killed and contents(place) == expected


def worker_pid():
    """The process of a worker with a model."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        if re.match(rb"ray::.*Parts", path.read_bytes()):
            return int(path.parent.name)
    raise AssertionError("no worker")


@pytest.mark.parametrize(
    ("source", "words"), [("in/*.parquet", r"longtail\[ray\]"), ("in.jsonl", "is not Parquet")]
)
@pytest.mark.parametrize("place", ["local"], indirect=True)
def test_the_command_refuses_before_it_computes(
    place, trained_sparse, tmp_path, monkeypatch, source, words
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "ray", None)
    Path("in.jsonl").write_text('{"text": "milk"}\n')
    given = ["predict", "--input", source, "--output", "out", "--engine", "ray"]
    registry = str(trained_sparse.registry.folder)
    ran = CliRunner().invoke(longtail.app, [*given, "--registry", registry])
    assert re.search(words, str(ran.exception)), ran.exception
    assert not Path("out").exists() or not list(Path("out").glob("*.parquet"))
