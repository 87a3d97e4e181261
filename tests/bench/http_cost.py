"""CPU of a request beside the model: a model that answers at once, against servers without one.

    python tests/bench/http_cost.py REGISTRY [--before FOLDER] [--json FILE]

Each server is a process of its own. A figure is the CPU time of that process (all threads, user and
system) divided by its answers: the median of the rounds, in which the servers take turns. "uvicorn"
answers a constant; "FastAPI" is a route as in FastAPI's tutorial that validates a body and answers
five labels; "service" is `longtail serve` with the labels of REGISTRY and a model that takes no
time, asked for five labels of a title. `--before` measures the service of another checkout, too.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import uvicorn
from fastapi import FastAPI
from load_generator import predict_requests, run, saturate
from machine import begin
from pydantic import BaseModel
from recording import Table, add_json_option, keep
from served_process import free_port, wait_until_ready

from longtail.models.bundle.bundle import Bundle
from longtail.models.options import RankingOptions
from longtail.models.predict.predictor import Predictor
from longtail.models.results import Prediction
from longtail.service.app import create_app
from longtail.service.process.compute_threads import prepare_process
from longtail.service.server import serve
from longtail.service.settings import Settings
from longtail.service.telemetry.logs import configure_logging

CONNECTIONS = (1, 32)
TITLE = "Duties on imports of olive oil from third countries"
REQUESTS = predict_requests([TITLE])
TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure, and print a table; or be one of the servers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("registry", type=Path)
    parser.add_argument("--before", type=Path, metavar="FOLDER", help="another checkout")
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve", nargs=2, metavar=("KIND", "PORT"), help=argparse.SUPPRESS)
    add_json_option(parser)
    chosen = begin(parser)
    if chosen.serve:
        serve_kind(chosen.serve[0], chosen.registry, int(chosen.serve[1]))
        return
    trees: dict[str, Path | None] = dict.fromkeys(("uvicorn", "FastAPI", "service"))
    if chosen.before is not None:
        trees["service, before"] = chosen.before
    table = Table({"connections": ""} | dict.fromkeys(trees, ".3f") | {"beside uvicorn": ".3f"})
    with ExitStack() as stack:
        servers = {
            name: stack.enter_context(served(name.partition(",")[0], chosen.registry, tree))
            for name, tree in trees.items()
        }
        for connections in CONNECTIONS:
            costs: dict[str, list[float]] = {name: [] for name in servers}
            for _ in range(chosen.rounds):
                for name, server in servers.items():
                    costs[name].append(cost_ms(*server, connections, chosen.seconds))
            medians = {name: median(each) for name, each in costs.items()}
            table.add(connections, *medians.values(), medians["service"] - medians["uvicorn"])
    keep(chosen.json, {"cpu_ms": table})


def cost_ms(port: int, pid: int, connections: int, seconds: float) -> float:
    """Return the CPU milliseconds of an answer under full load over so many connections."""
    before = cpu_s(pid)
    load = run(saturate(port, REQUESTS, connections, seconds))
    assert set(load.statuses) == {200}, load.statuses
    return 1000 * (cpu_s(pid) - before) / load.statuses[200]


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of all threads of a process, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


@contextmanager
def served(kind: str, registry: Path, tree: Path | None) -> Iterator[tuple[int, int]]:
    """Start a server, wait until it answers, and end it at last.

    Yields:
        Its port and process id.
    """
    port = free_port()
    environ = dict(os.environ) if tree is None else os.environ | {"PYTHONPATH": str(tree)}
    command = [sys.executable, __file__, str(registry), "--serve", kind, str(port)]
    process = subprocess.Popen(command, env=environ, stderr=subprocess.DEVNULL)  # its log
    try:
        wait_until_ready(process, port, 120)
        yield port, process.pid
    finally:
        process.terminate()
        process.wait()


def serve_kind(kind: str, registry: Path, port: int) -> None:
    """Serve until a signal ends it."""
    if kind == "service":
        configure_logging("info")
        prepare_process(1)
        settings = Settings(registry=registry, port=port, drain_delay_s=0)
        serve(create_app(settings, load=Canned))
    else:
        app = constant_app() if kind == "uvicorn" else route_app()
        uvicorn.run(app, port=port, log_config=None, access_log=False)


def constant_app() -> Any:
    """Return an ASGI application that answers a constant."""
    body = b'{"status": "ready"}'
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await receive()
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": body})

    return app


def route_app() -> FastAPI:
    """Return an application as FastAPI's tutorial writes it."""
    app = FastAPI()

    @app.get("/readyz")
    async def readyz() -> dict[str, str]:
        return {"status": "ready"}

    @app.post("/v1/predict")
    async def predict(asked: Asked) -> Answer:
        labels = [Label(id=str(i), name=asked.text, score=1 / (i + 1)) for i in range(asked.k)]
        return Answer(labels=labels)

    return app


class Asked(BaseModel):
    """A request to that application."""

    text: str
    k: int = 5


class Label(BaseModel):
    """A label of its answer."""

    id: str
    name: str
    score: float


class Answer(BaseModel):
    """Its answer."""

    labels: list[Label]


class Texts(tuple[str, ...]):
    """Texts that are ready without any work."""

    def take(self, rows: Sequence[int]) -> Texts:
        """Return some of them."""
        return Texts(self[row] for row in rows)

    @classmethod
    def joined(cls, batches: Sequence[Texts]) -> Texts:
        """Return those of several batches."""
        return cls(text for batch in batches for text in batch)


class Canned:
    """A loaded model that gives one answer about all texts."""

    def __init__(self, bundle: Bundle) -> None:
        """Make the answer, with five labels."""
        self._model = Predictor.of_bundle(bundle, device="cpu", num_threads=1)
        (self._answer,) = self._model.predict([TITLE])

    def __getattr__(self, name: str) -> Any:
        """Return what does not depend on texts."""
        return getattr(self._model, name)

    def read(self, texts: Sequence[str]) -> Texts:
        """Return the texts."""
        return Texts(texts)

    def prepare(self, batch: Texts, scorer: str | None = None) -> list[int]:
        """Return a number of tokens for each."""
        del scorer
        return [9] * len(batch)

    def predict_batch(self, batch: Texts, options: RankingOptions) -> list[Prediction]:
        """Return the answer for each."""
        del options
        return [self._answer] * len(batch)

    def predict(self, texts: Sequence[str], **options: object) -> list[Prediction]:
        """Return the answer for each."""
        del options
        return [self._answer] * len(texts)


if __name__ == "__main__":
    main()
