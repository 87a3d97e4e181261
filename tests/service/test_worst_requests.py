"""No request keeps the event loop, takes much memory or fails, whatever of it is at its limit.

The cases are those of `tests/bench/worst_requests.py`, made of the OpenAPI document: a new route
joins by being in it. Here no clock decides: the processor time of the event loop's thread between
two of its turns is measured, and the highest memory of the process.
"""

import asyncio
import gc
import importlib.util
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from urllib.parse import unquote_to_bytes

import pytest

from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.models.labels.search import LabelSearch
from longtail.models.labels.selection import LabelSelector

pytestmark = pytest.mark.slow

MAX_TURN_S = 0.1
MAX_MEMORY_KIB = 64 * 1024
NUM_PARTS = 4
TRIES = 3
"""What exceeds a bound is tried again: the first time, Python makes what it keeps."""
STATUS = Path("/proc/self/status")


@pytest.fixture(scope="module")
def worst():
    """The script, which is no part of a package."""
    path = Path(__file__).parents[1] / "bench" / "worst_cases.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, path.stem, module)
        spec.loader.exec_module(module)
    return module


class Turns:
    """Measures the processor time of each turn of event loops: others wait as long for theirs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.longest_s = 0.0
        run_once = asyncio.BaseEventLoop._run_once

        def timed(loop: asyncio.BaseEventLoop) -> None:
            begin = time.thread_time()  # which does not pass while the loop waits
            run_once(loop)
            self.longest_s = max(self.longest_s, time.thread_time() - begin)

        monkeypatch.setattr(asyncio.BaseEventLoop, "_run_once", timed)


def pieces_of(body: bytes) -> Iterator[dict[str, object]]:
    """Yield the messages of a body, in pieces as a server reads them."""
    size = 2**16
    for first in range(0, max(1, len(body)), size):
        more = first + size < len(body)
        yield {"type": "http.request", "body": body[first : first + size], "more_body": more}


async def ask(app, case, body: bytes, headers) -> int:
    """Return the status of the answer to a case; no server stands in between."""
    path, _, query = case.target.partition("?")
    sent = {"Host": "localhost"} | headers | dict(case.headers)
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http",
        "method": case.method, "path": unquote_to_bytes(path).decode("utf-8", "replace"),
        "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
        "headers": [(name.lower().encode(), str(value).encode()) for name, value in sent.items()],
        "server": ("localhost", 80), "client": ("127.0.0.1", 9),
    }  # fmt: skip
    messages = pieces_of(body)
    statuses = []

    async def receive():
        message = next(messages, None)
        if message is None:
            await asyncio.Event().wait()
        return message

    async def send(message) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    await app(scope, receive, send)
    return statuses[0]


def memory_kib(name: str) -> int:
    lines = STATUS.read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1])


def cost_of(client, turns: Turns, case) -> tuple[int, float, int]:
    """Return the status, the longest turn in seconds, and the memory in KiB of a case."""
    body = b"" if case.make_body is None else case.make_body()
    headers = {"Authorization": client.headers["Authorization"]}
    Path("/proc/self/clear_refs").write_text("5")  # begins VmHWM anew
    before, turns.longest_s = memory_kib("VmRSS"), 0.0
    status = client.portal.call(ask, client.app, case, body, headers)
    return status, turns.longest_s, memory_kib("VmHWM") - before


@pytest.fixture
def many_labels(make_loader, fake_predictor):
    """A model of so many labels that answers can be long."""

    class ManyLabels(fake_predictor):
        def __init__(self, bundle) -> None:
            super().__init__(bundle)
            self.catalogue = LabelCatalogue(Label(f"L{i}", f"Label {i}") for i in range(2000))
            self.scorers.selector = LabelSelector(self.catalogue)
            self.label_search = LabelSearch(self.catalogue)

    return make_loader(predictor_class=ManyLabels)


@pytest.fixture
def all_on(open_admin, many_labels, tmp_path):
    # Feedback is off by default.
    options = {"feedback": tmp_path / "feedback", "max_queue_tokens": 10**6}
    with open_admin(many_labels, **options) as client:
        yield client


@pytest.mark.parametrize("part", range(NUM_PARTS))
def test_every_route_keeps_its_bounds_at_every_limit(all_on, monkeypatch, worst, part):
    document = all_on.get("/openapi.json").json()
    all_on.get("/v1/labels?query=a")  # which makes what it searches
    turns = Turns(monkeypatch)
    cases = islice(worst.cases_of(document), part, None, NUM_PARTS)
    excesses = [excess for case in cases if (excess := excess_of(all_on, turns, case))]
    assert not excesses, "\n".join(excesses)


def test_every_route_and_every_body_has_cases(all_on, worst):
    document = all_on.get("/openapi.json").json()
    dimensions = defaultdict(set)
    for case in worst.cases_of(document):
        dimensions[case.operation].add(case.dimension)
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            least = 8 if "requestBody" in operation else 4
            assert len(dimensions[f"{method.upper()} {path}"]) > least


def excess_of(client, turns: Turns, case) -> str:
    """Return in words which bound a case exceeds each time that it is tried; empty for none."""
    costs = []
    for _ in range(TRIES):
        costs.append(cost_of(client, turns, case))
        status, turn_s, memory = (min(each) for each in zip(*costs, strict=True))
        if status < 500 and turn_s < MAX_TURN_S and memory < MAX_MEMORY_KIB:
            return ""
        gc.collect()
    return f"{case.operation}, {case.dimension}: {status}, {turn_s:.3f} s, {memory // 1024} MiB"


def test_a_body_of_an_unknown_media_type_has_no_cases(worst):
    operation = {"post": {"requestBody": {"content": {"text/new": {"schema": {}}}}}}
    with pytest.raises(KeyError, match="text/new"):
        list(worst.cases_of({"components": {"schemas": {}}, "paths": {"/new": operation}}))
