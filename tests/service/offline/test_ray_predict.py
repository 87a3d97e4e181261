"""`longtail predict --engine ray`: byte for byte what the local command writes.

Most of it without Ray; what needs a cluster is skipped where the extra `ray` is not installed.
"""

from __future__ import annotations

import gzip
import json
import os
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

import longtail
from longtail.models.errors import ConfigError
from longtail.models.predict.predictor import Predictor
from longtail.service.engine.label_sets import LabelSets
from longtail.service.offline import predict as offline
from longtail.service.offline import ray as ray_predict
from longtail.service.offline.predict import predict_file
from longtail.service.offline.ray import Workers, predict_on_ray
from longtail.service.offline.unfinished import Task

CHUNK = 4
pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own


class FakeRay:
    """Stands in for Ray: workers in this process; may be interrupted after some chunks."""

    def __init__(self) -> None:
        self.most_chunks = 1000
        self.num_workers = 0
        self.num_chunks = 0

    def remote(self, kind: Any) -> Any:
        def make(*given: Any) -> Any:
            self.num_workers += 1
            worker = kind(*given)
            return SimpleNamespace(answers=SimpleNamespace(remote=partial(partial, worker.answers)))

        return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=make))

    def get(self, work: Any) -> Any:
        if self.num_chunks == self.most_chunks:
            raise KeyboardInterrupt
        self.num_chunks += 1
        return work()


@pytest.fixture
def fake_ray(monkeypatch):
    fake = FakeRay()
    monkeypatch.setattr(ray_predict, "start_ray", lambda *_: fake)
    monkeypatch.setattr(offline, "CHUNK_LINES", CHUNK)
    return fake


@pytest.fixture
def predictor(trained):
    return Predictor.of_bundle(trained.bundle, device="cpu", num_threads=1)


@pytest.fixture
def workers(trained):
    return Workers(trained.registry.folder, None, num_workers=4, precision="float32")


@pytest.fixture
def task(trained, tmp_path):
    def make(num_lines: int, name: str = "in.jsonl", **defaults: Any) -> Task:
        body = lines_of(num_lines)
        source = tmp_path / name
        source.write_bytes(gzip.compress(body) if name.endswith(".gz") else body)
        digest = trained.bundle.manifest.digest
        return Task(source, tmp_path / "ray" / "out.jsonl", trained.version, digest, defaults)

    return make


def lines_of(count: int) -> bytes:
    """Lines of all kinds: of unlike length, blank, and wrong."""
    kinds = (
        lambda i: json.dumps({"id": i, "text": f"regulation {i} on olive oil " * (1 + i % 9)}),
        lambda i: json.dumps({"text": f"fish {i} of the Baltic Sea", "k": 1 + i % 3}),
        lambda i: "",
        lambda i: json.dumps({"text": f"milk {i}", "scorer": "nobody"}),
        lambda i: "no JSON",
        lambda i: json.dumps({"text": f"council {i}", "tail_dial": 1.0, "scorer": "sparse"}),
    )
    return "".join(kinds[i % len(kinds)](i) + "\n" for i in range(count)).encode()


def locally(asked: Task, predictor: Predictor, tmp_path: Path) -> bytes:
    """What the local command writes."""
    here = Task(asked.source, tmp_path / "here.jsonl", asked.version, asked.digest, asked.defaults)
    predict_file(here, predictor)
    return here.target.read_bytes()


@pytest.mark.parametrize("name", ["in.jsonl", "in.jsonl.gz"])
@pytest.mark.parametrize("num_lines", [0, 1, 2 * CHUNK, 61])
def test_the_answers_are_those_of_the_local_command(
    fake_ray, task, predictor, workers, tmp_path, num_lines, name
):
    asked, seen = task(num_lines, name, k=3), []
    summary = predict_on_ray(asked, workers, seen.append)
    assert asked.target.read_bytes() == locally(asked, predictor, tmp_path)
    assert summary.num_lines == len(asked.target.read_bytes().splitlines())
    assert [path.name for path in asked.target.parent.iterdir()] == ["out.jsonl"]
    num_chunks = -(-summary.num_lines // CHUNK)
    assert (fake_ray.num_chunks, fake_ray.num_workers) == (num_chunks, min(4, num_chunks))
    assert sum(seen) == (asked.source.stat().st_size if num_lines else 0)


@pytest.mark.parametrize("first_engine", ["local", "ray"])
def test_either_engine_goes_on_where_the_other_was_cut_off(
    fake_ray, task, predictor, workers, tmp_path, monkeypatch, first_engine
):
    asked = task(61)
    wanted = locally(asked, predictor, tmp_path)
    fake_ray.most_chunks = 2
    with pytest.raises(KeyboardInterrupt):
        predict_on_ray(asked, workers)
    with asked.part.open("ab") as part:  # cut off in the middle of a chunk, and of a line
        part.write(wanted[len(asked.part.read_bytes()) :][:200])
    fake_ray.most_chunks = 1000
    summary = (
        predict_file(asked, predictor) if first_engine == "ray" else predict_on_ray(asked, workers)
    )
    assert asked.target.read_bytes() == wanted
    assert summary.num_lines == wanted.count(b"\n")


def test_workers_read_the_stored_sets(fake_ray, trained, task, predictor, tmp_path):
    (tmp_path / "sets").mkdir()
    ids = [label.id for label in predictor.catalogue][:2]
    (tmp_path / "sets" / "few.json").write_text(json.dumps(ids))
    asked = task(2, include_set="few", k=1)
    asked = replace(asked, label_sets=LabelSets(tmp_path / "sets"))
    predict_on_ray(asked, Workers(trained.registry.folder, tmp_path / "sets", 1))
    found = [json.loads(line) for line in asked.target.read_text().splitlines()]
    assert all(x["labels"][0]["id"] in ids for x in found)


def test_without_ray_the_error_names_the_extra(trained, task, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    run = CliRunner().invoke(longtail.app, [*command(task(3), trained), "--engine", "ray"])
    assert isinstance(run.exception, ConfigError)
    assert 'pip install "longtail[ray]"' in str(run.exception)


def command(asked: Task, trained: Any) -> list[str]:
    given = ["predict", "--input", str(asked.source), "--output", str(asked.target)]
    return [*given, "--registry", str(trained.registry.folder), "--precision", "float32"]


@pytest.mark.ray
def test_four_workers_on_a_cluster_write_the_same_bytes(ray_cluster, trained, task, tmp_path):
    asked = task(6 * 512, k=3)
    local = [*command(asked, trained), "--num-threads", "1", "-k", "3"]
    local[local.index("--output") + 1] = str(tmp_path / "here.jsonl")
    ran = CliRunner().invoke(longtail.app, local)
    assert ran.exit_code == 0, ran.output
    given = [*command(asked, trained), "--engine", "ray", "--workers", "4", "-k", "3"]
    ran = CliRunner().invoke(longtail.app, given)
    assert ran.exit_code == 0, ran.output
    assert asked.target.read_bytes() == (tmp_path / "here.jsonl").read_bytes()


@pytest.mark.ray
def test_killing_workers_loses_and_doubles_nothing(ray_cluster, task, predictor, workers, tmp_path):
    asked = task(8 * 512)
    killed: list[int] = []

    def kill_one(_: int) -> None:
        if len(killed) < 3:
            pids = [pid for pid in worker_pids() if pid not in killed]
            if pids:
                os.kill(pids[0], signal.SIGKILL)
                killed.append(pids[0])

    summary = predict_on_ray(asked, workers, kill_one)
    assert killed
    found = asked.target.read_bytes()
    assert found == locally(asked, predictor, tmp_path)
    indices = [json.loads(line)["index"] for line in found.splitlines()]
    assert indices == list(range(summary.num_lines))


def worker_pids() -> list[int]:
    """Processes of workers with a model."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            name = path.read_bytes()
        except OSError:
            continue  # it has ended
        if name.startswith(b"ray::") and b"Answerer" in name:
            found.append(int(path.parent.name))
    return found
