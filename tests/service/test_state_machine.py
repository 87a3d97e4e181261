"""Whatever was asked before, in whatever order, the next plain request is answered.

Each example starts the service anew with real models, for it is the first requests that teach it
its speeds and sizes, and does a random sequence of requests, swaps, bad bodies and hang-ups. After
each step a plain request must be answered 200, and `/readyz` must say so.

`FUZZ_REQUESTS=20000 FUZZ_SEED=1 pytest tests/service/test_state_machine.py` does many more;
`make fuzz` does so with the date as its seed.
"""

import gzip
import itertools
import json
import os
import shutil
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

import httpx
import pytest
import uvicorn
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from longtail.models.bundle.registry import Registry
from longtail.service.app import create_app
from longtail.service.http.api_keys import make_key
from longtail.service.settings import Settings

pytestmark = pytest.mark.slow

NUM_REQUESTS = int(os.environ.get("FUZZ_REQUESTS", "300"))
SEED = int(os.environ.get("FUZZ_SEED", "20261122"))
MACHINE_SETTINGS = settings(
    max_examples=8, stateful_step_count=20, derandomize=False, database=None, deadline=None,
    print_blob=True, phases=[Phase.generate, Phase.shrink], suppress_health_check=list(HealthCheck),
)  # fmt: skip
DEADLINE_S = 300
"""Seconds in which a plain request is answered; generous, as the machine may be busy."""

DENSE, SPARSE, OTHER, BROKEN, MISSING = 1, 2, 3, 4, 9
PLAIN = "Duties on imports of olive oil from third countries"
WORDLESS = ("!", "x", "1", "好", "é", "🙂", "...", "\u200b!", "_", "\ufffd")

words = st.sampled_from(["olive", "oil", "import", "fish", "x", "1", "!", "好", "naïve", "\u0301"])
texts = st.one_of(
    st.sampled_from(WORDLESS),
    st.sampled_from(["", " ", "\n", "\0", "\ud800"]),
    st.just(PLAIN),
    st.text(max_size=40),
    st.builds(lambda word, count: f"{word} " * count, words, st.integers(1, 3000)),
    st.lists(words, min_size=1, max_size=60).map(" ".join),
)
label_ids = st.one_of(st.sampled_from(["1264", "1309", "2136", "http://example.org/1"]), st.text())
numbers = st.one_of(
    st.sampled_from([0, 1, 0.5, -1, 5e-324, 1e-9, 1e308, 1000, 2**63, float("nan"), float("inf")]),
    st.floats(0, 1),
)
options = st.fixed_dictionaries(
    {},
    optional={
        "k": st.one_of(st.integers(1, 12), st.sampled_from([0, 1000, 10**9, 3.0])),
        "scorer": st.sampled_from(
            [
                "retrieval", "classifier", "hybrid", "linear", "sparse", "names", "ensemble",
                "nope", "",
            ],
        ),
        "threshold": numbers, "tail_dial": numbers, "timeout_s": st.one_of(st.just(30), numbers),
        "correction": st.sampled_from(["none", "prior", "tree", "all"]), "explain": st.booleans(),
        "include": st.lists(label_ids, max_size=3), "exclude": st.lists(label_ids, max_size=3),
        "include_set": st.just("nosuchset"),
        "version": st.sampled_from([DENSE, SPARSE, OTHER, BROKEN, MISSING, "current", "latest"]),
    },
)  # fmt: skip
paths = st.sampled_from(
    [
        "/v1/predict", "/v1/batch", "/v1/projects/longtail/suggest",
        "/v1/projects/longtail/suggest-batch", "/v2/models/longtail/infer",
        "/v1/admin/rollback", "/v1/admin/models/1/activate", "/nowhere",
    ]
)  # fmt: skip
media_types = st.sampled_from(
    [
        "application/json", "application/x-ndjson", "application/x-www-form-urlencoded",
        "application/octet-stream", "text/plain; charset=\x7f", "/;", "",
    ]
)  # fmt: skip
bodies = st.one_of(
    st.binary(max_size=200),
    st.builds(lambda text: json.dumps({"text": text}).encode(), texts),
    st.sampled_from(
        [
            b"[" * 50_000, b'{"text": "\\ud800"}', b'{"text": "a", "k": ' + b"9" * 5000 + b"}",
            b'{"text": "a", "tail_dial": 1e999}', b"\xff\xfe\x00", b"text=%zz%&limit=-1",
            b'{"inputs": [{"name": "TEXT", "shape": [1e9], "datatype": "BYTES", "data": []}]}',
        ]
    ),
)  # fmt: skip
pieces = st.sampled_from(
    [b"", b"P", b'{"text": "ol', b'{"text": "olive oil"}\n{"te', b"\x1f\x8b", b"text=olive"]
)
versions = st.sampled_from([DENSE, SPARSE, OTHER, BROKEN, MISSING])


OpenService = Callable[[int], AbstractContextManager[tuple[int, dict[str, str], Path]]]


class ServiceMachine(RuleBasedStateMachine):
    """Steps that strangers take; `open_service` is set by the test."""

    open_service: ClassVar[OpenService]
    statuses: ClassVar[Counter[int]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self._stack = ExitStack()

    @initialize(version=st.sampled_from([SPARSE, DENSE]), first=st.sampled_from(WORDLESS))
    def start(self, version: int, first: str) -> None:
        """Start the service; what it first learns of requests comes from a text without a word."""
        service = type(self).open_service(version)
        self._port, self._admin, self._registry = self._stack.enter_context(service)
        url = f"http://127.0.0.1:{self._port}"
        self._http = self._stack.enter_context(httpx.Client(base_url=url, timeout=DEADLINE_S))
        self._ask("/v1/predict", {"text": first, "scorer": "sparse"})

    def teardown(self) -> None:
        self._stack.close()

    @rule(text=texts, chosen=options)
    def predict(self, text: str, chosen: dict[str, Any]) -> None:
        self._ask("/v1/predict", {"text": text} | chosen, is_late=is_urgent(chosen))

    @rule(several=st.lists(texts, max_size=5), chosen=options)
    def predict_several(self, several: list[str], chosen: dict[str, Any]) -> None:
        self._ask("/v1/predict", {"texts": several} | chosen, is_late=is_urgent(chosen))

    @rule(lines=st.lists(st.tuples(texts, options), max_size=6), is_packed=st.booleans())
    def stream(self, lines: list[tuple[str, dict[str, Any]]], *, is_packed: bool) -> None:
        body = b"".join(json.dumps({"text": x} | y).encode() + b"\n" for x, y in lines)
        headers = {"Content-Type": "application/x-ndjson"}
        if is_packed:
            body, headers = gzip.compress(body), headers | {"Content-Encoding": "gzip"}
        self._post("/v1/batch", body, headers)

    @rule(body=bodies, path=paths, media_type=media_types, encoding=st.sampled_from(["", "gzip"]))
    def send_bad_body(self, body: bytes, path: str, media_type: str, encoding: str) -> None:
        headers = {"Content-Type": media_type}
        self._post(path, body, headers | ({"Content-Encoding": encoding} if encoding else {}))

    @rule(text=texts, limit=st.integers(-1, 20), threshold=st.floats(-1, 2))
    def suggest(self, text: str, limit: int, threshold: float) -> None:
        fields = {"text": text.encode("utf-8", "replace"), "limit": limit, "threshold": threshold}
        answer = self._http.post("/v1/projects/longtail/suggest", data=fields)
        self._note(answer.status_code)

    @rule(several=st.lists(texts, max_size=3))
    def infer(self, several: list[str]) -> None:
        tensor = {"name": "TEXT", "shape": [len(several)], "datatype": "BYTES", "data": several}
        self._ask("/v2/models/longtail/infer", {"inputs": [tensor]})

    @rule(query=st.text(max_size=20), label_id=label_ids)
    def look_up(self, query: str, label_id: str) -> None:
        for path in (f"/v1/labels?query={quoted(query)}", f"/v1/labels/{quoted(label_id)}"):
            self._get(path)

    @rule(path=paths, piece=pieces, is_chunked=st.booleans(), resets=st.booleans())
    def hang_up(self, path: str, piece: bytes, *, is_chunked: bool, resets: bool) -> None:
        framing = "Transfer-Encoding: chunked" if is_chunked else "Content-Length: 1000"
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{framing}\r\n"
        sent = b"%x\r\n%s" % (len(piece) + 5, piece) if is_chunked else piece
        with socket.create_connection(("127.0.0.1", self._port)) as connection:
            connection.sendall(head.encode() + b"\r\n" + sent)
            if resets:  # instead of a FIN
                linger = (1).to_bytes(4, "little") + bytes(4)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self._check()

    @rule(
        piece=st.sampled_from([b"", b"POST /v1/pre", b"POST /v1/predict HTTP/1.1\r\nHost: x\r\n"])
    )
    def stay_silent(self, piece: bytes) -> None:
        connection = socket.create_connection(("127.0.0.1", self._port))
        self._stack.callback(connection.close)
        connection.sendall(piece)
        self._check()

    @rule(version=versions, action=st.sampled_from(["load", "unload", "activate"]))
    def change(self, version: int, action: str) -> None:
        self._post(f"/v1/admin/models/{version}/{action}", b"", self._admin)

    @rule()
    def roll_back(self) -> None:
        self._post("/v1/admin/rollback", b"", self._admin)

    @rule(version=versions, share=numbers)
    def try_canary(self, version: int, share: float) -> None:
        body = json.dumps({"version": version, "share": share}).encode()
        headers = self._admin | {"Content-Type": "application/json"}
        self._note(self._http.put("/v1/admin/canary", content=body, headers=headers).status_code)

    @rule()
    def end_canary(self) -> None:
        self._note(self._http.delete("/v1/admin/canary", headers=self._admin).status_code)

    @rule(version=st.sampled_from([DENSE, SPARSE, OTHER]))
    def move_alias(self, version: int) -> None:
        Registry(self._registry).activate(version)
        self._check()

    @rule(several=st.lists(st.tuples(texts, options), min_size=2, max_size=8))
    def ask_at_once(self, several: list[tuple[str, dict[str, Any]]]) -> None:
        headers = {"Content-Type": "application/json"}
        requests = [(json.dumps({"text": x} | y), is_urgent(y)) for x, y in several]

        def ask(request: tuple[str, bool]) -> tuple[int, bool]:
            answer = self._http.post("/v1/predict", content=request[0], headers=headers)
            return answer.status_code, request[1]

        with ThreadPoolExecutor(len(requests)) as pool:
            for status, is_late in pool.map(ask, requests):
                self._judge(status, is_late=is_late)
        self._check()

    @rule()
    def watch(self) -> None:
        for path in ("/livez", "/metrics", "/v1/models", "/openapi.json", "/", "/v1/label-sets"):
            self._get(path)

    def _ask(self, path: str, body: dict[str, Any], *, is_late: bool = False) -> None:
        headers = {"Content-Type": "application/json"}
        self._post(path, json.dumps(body).encode(), headers, is_late=is_late)

    def _post(
        self, path: str, body: bytes, headers: dict[str, str], *, is_late: bool = False
    ) -> None:
        answer = self._http.post(path, content=body, headers=headers)
        self._note(answer.status_code, is_late=is_late)

    def _get(self, path: str) -> None:
        self._note(self._http.get(path).status_code)

    def _note(self, status: int, *, is_late: bool = False) -> None:
        self._judge(status, is_late=is_late)
        self._check()

    def _judge(self, status: int, *, is_late: bool) -> None:
        self.statuses[status] += 1
        assert status < 500 or (status == 504 and is_late), status

    def _check(self) -> None:
        """Check that a plain request is answered, and that the service says that it can."""
        answer = self._http.post("/v1/predict", json={"text": PLAIN, "k": 3})
        assert answer.status_code == 200, answer.text
        assert len(answer.json()["results"][0]["labels"]) == 3
        ready = self._http.get("/readyz")
        assert ready.status_code == 200, ready.text
        self.statuses[200] += 2


def is_urgent(chosen: dict[str, Any]) -> bool:
    """Whether a request asks for an answer so soon that there may be none."""
    limit = chosen.get("timeout_s", DEADLINE_S)
    return not limit >= DEADLINE_S


def quoted(text: str) -> str:
    return quote(text.encode("utf-8", "replace"), safe="")


@pytest.fixture(scope="module")
def source(tmp_path_factory, trained, trained_sparse):
    """A registry with a model with an encoder, two without, and one that is damaged."""
    registry = Registry(tmp_path_factory.mktemp("state-machine") / "registry")
    folders = [Path(trained.bundle.folder), Path(trained_sparse.bundle.folder)]
    registry.folder.mkdir()
    for version, folder in enumerate((folders[0], folders[1], folders[1], folders[0]), 1):
        shutil.copytree(folder, registry.folder / str(version))
    (registry.folder / str(BROKEN) / "labels.jsonl").write_text("{}\n")
    return registry.folder


@pytest.fixture
def open_service(source, tmp_path):
    """Starts the service with a version, over a fresh copy of the registry."""
    turns = itertools.count()
    key, entry = make_key("state-machine")

    @contextmanager
    def start(version: int) -> Iterator[tuple[int, dict[str, str], Path]]:
        folder = tmp_path / str(next(turns))
        shutil.copytree(source, folder)
        Registry(folder).activate(version)
        app = create_app(
            Settings(
                registry=folder, admin_keys=entry, watch_interval_s=0.2, log_level="error",
                num_threads=1, request_timeout_s=DEADLINE_S,
                precision="float32", max_text_characters=10_000,
            )
        )  # fmt: skip
        config = uvicorn.Config(app, port=0, log_config=None, timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            wait_until_ready(server, app)
            port = server.servers[0].sockets[0].getsockname()[1]
            yield port, {"Authorization": f"Bearer {key}"}, folder
        finally:
            server.should_exit = True
            thread.join()
            shutil.rmtree(folder)

    return start


def wait_until_ready(server: uvicorn.Server, app: Any) -> None:
    waiting = threading.Event()
    for _ in range(DEADLINE_S * 100):
        if server.started and app.state.service.manager.served is not None:
            return
        waiting.wait(0.01)
    raise AssertionError("the service did not start")


def test_any_order_of_requests_leaves_a_service_that_answers(capsys, open_service):
    class Machine(ServiceMachine):
        pass

    Machine.open_service = staticmethod(open_service)
    Machine.statuses = Counter()
    for number in itertools.count(SEED):
        seeded = seed(number)(Machine)
        run_state_machine_as_test(seeded, settings=MACHINE_SETTINGS)
        if Machine.statuses.total() >= NUM_REQUESTS:
            break
    statuses = dict(sorted(Machine.statuses.items()))
    count = Machine.statuses.total()
    with capsys.disabled():
        print(f" seed {SEED}: {count} requests by status: {statuses} ", end="")  # noqa: T201
    assert statuses[200] > count / 2 and statuses[422]
