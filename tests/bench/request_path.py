"""Which of our functions one warm `POST /v1/predict` calls, in order, with their files.

    python tests/bench/request_path.py REGISTRY

The service runs in this process behind uvicorn, and `sys.setprofile` watches all of its threads.
Only functions that each of five requests calls are listed, which leaves out timers.
"""

from __future__ import annotations

import http.client
import json
import sys
import threading
import time
from pathlib import Path
from types import FrameType

import uvicorn

from longtail.service.app import create_app
from longtail.service.server import uvicorn_options
from longtail.service.settings import Settings

BODY = json.dumps({"text": "Duties on imports of olive oil from third countries"})
Call = tuple[str, str]
"""A module and the qualified name of a function in it."""


def traced_calls(registry: Path, num_requests: int = 5) -> list[Call]:
    """Serve a registry, and return the functions that a title passes for the default scorer."""
    calls: dict[Call, None] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        module = frame.f_globals.get("__name__", "")
        is_written = "<" not in code.co_name + code.co_filename  # by us: no comprehension, say
        if event == "call" and is_written and module.startswith("longtail."):
            calls[module, code.co_qualname] = None

    threading.setprofile(note)  # for threads that start from now on
    settings = Settings(registry=registry, port=0, num_threads=1)
    options = uvicorn_options(settings)
    server = uvicorn.Server(uvicorn.Config(create_app(settings), **options))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    connection = http.client.HTTPConnection(*server.servers[0].sockets[0].getsockname())
    try:
        found: list[list[Call]] = []
        while len(found) <= num_requests:
            calls.clear()
            connection.request("POST", "/v1/predict", BODY, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            time.sleep(0.05)  # the last threads come to rest
            if answer.status == 200:
                if not found:  # or a thread would make its index beside later requests
                    connection.request("GET", "/v1/labels?query=a")
                    connection.getresponse().read()
                found.append(list(calls))
            elif answer.status != 503:
                raise RuntimeError(answer.status)
        return [call for call in found[-1] if all(call in each for each in found[1:])]
    finally:
        connection.close()
        server.should_exit = True
        thread.join()
        threading.setprofile(None)  # type: ignore[arg-type]  # as its documentation says


if __name__ == "__main__":
    listed = traced_calls(Path(sys.argv[1]))
    for number, (module, name) in enumerate(listed, 1):
        print(f"{number:4} {module}: {name}")
    print(f"{len(listed)} functions in {len({module for module, _ in listed})} files")
