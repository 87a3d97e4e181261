"""The command `longtail`: puts together the commands of the two sides, and shows both in `demo`."""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import sys
import time
import traceback
import urllib.error
import urllib.request
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import service.cli
from models.errors import LongtailError
from models.files.failures import (
    DEBUG_VARIABLE,
    INTERRUPTED,
    READER_GONE,
    CommandStoppedError,
    doing,
    explain,
)


class _Commands(TyperGroup):
    """The commands; what stops one is told by `main`, whichever release of Typer runs it."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command.

        Raises:
            CommandStoppedError: It was interrupted, or whoever read its output went away.
        """
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise CommandStoppedError(INTERRUPTED) from error
        except BrokenPipeError as error:
            raise CommandStoppedError(READER_GONE) from error


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Labels for texts out of very large label sets, right for rare labels too.",
    epilog="Exit status: 0 done; 1 failed, the last line on stderr says why; 2 the command line "
    "can't be read; 130 interrupted; 141 the reader of the output went away.",
)

TRAINING = Path(__file__).parent / "training"
DEMO_DATA = TRAINING / "demo_data"
DEMO_CONFIG = TRAINING / "configs" / "demo.yaml"
_START_TIMEOUT_S = 120.0


@app.callback()
def prepare(
    debug: Annotated[  # noqa: ARG001  # read by `main`, which sees it before the command runs
        bool, typer.Option("--debug", help=f"Show the traceback of an error ({DEBUG_VARIABLE}=1).")
    ] = False,
) -> None:
    """Labels for texts out of very large label sets, right for rare labels too."""
    if not any(name.upper().startswith("LONGTAIL_") for name in os.environ):
        return  # the settings take a while to import
    from service.settings import refuse_unknown_variables

    refuse_unknown_variables(os.environ)


def demo(
    registry: Annotated[Path, typer.Option(help="Folder of the registry.")] = Path("registry"),
    work: Annotated[Path, typer.Option(help="Folder of the run's work.")] = Path("runs/demo"),
    port: Annotated[int, typer.Option(help="TCP port of the service.")] = 8000,
) -> None:
    """Train on the demo data, evaluate, serve, and ask for the labels of a real text over HTTP."""
    import training.cli

    started = time.monotonic()
    _check_port(port)
    _headline("Train on the demo data (a slice of EURLEX57K)")
    training.cli.train(DEMO_DATA, config=DEMO_CONFIG, registry=registry, work=work)
    _headline("Evaluate on its test split")
    evaluation = work / "evaluation"
    training.cli.evaluate(DEMO_DATA, registry=registry, output=evaluation, overwrite=True)
    _headline("Ask the service over HTTP")
    base = f"http://127.0.0.1:{port}"
    server = _start_service(registry, port, base)
    try:
        _ask(base)
    finally:
        server.terminate()
        server.wait()
    print(
        f"\nTables and picture: {work / 'evaluation'}\n"
        f"Now 'make serve', then try it by hand at {base}/ (the API is described at {base}/docs).\n"
        f"Took {time.monotonic() - started:.0f} s, at most {_peak_memory_gib():.1f} GiB of memory."
    )


def _ask(base: str) -> None:
    """Ask for the labels of one text by every scorer, and print them beside the truth."""
    from itertools import islice

    from training.data.dataset import open_dataset

    dataset = open_dataset(DEMO_DATA)
    split = dataset.split("test")
    middle = split.scan().labels.shape[0] // 2  # they are in order of time: neither old nor new
    document = next(islice(split, middle, None))
    truth = [dataset.catalogue[index] for index in document.labels]
    print(f"POST {base}/v1/predict\nText: {document.text[:160]!r}...")
    print(f"Its labels: {', '.join(label.name for label in truth)}")
    for scorer in ("retrieval", "classifier", "linear", "sparse"):
        body = {"text": document.text, "k": 5, "scorer": scorer}
        answer = _post(f"{base}/v1/predict", body)
        print(f"\n{scorer}, model version {answer['model']['version']} (* is right):")
        for label in answer["results"][0]["labels"]:
            mark = "*" if label["id"] in {each.id for each in truth} else " "
            print(f"  {mark} {label['score']:8.3f}  {label['name']}")


def _check_port(port: int) -> None:
    """Refuse a port that somebody listens on: the answers would be theirs.

    Raises:
        LongtailError: It is taken.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise LongtailError(
                f"port {port} is taken ({error.strerror}); choose another: make demo PORT=8001"
            ) from error


def _peak_memory_gib() -> float:
    """Return the largest resident memory of this process and of any that it started."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    unit = 1 if sys.platform == "darwin" else 2**10  # bytes there, kilobytes elsewhere
    return max(usage.ru_maxrss for usage in usages) * unit / 2**30


def _start_service(registry: Path, port: int, base: str) -> subprocess.Popen[bytes]:
    """Start the service and return it when it is ready.

    Raises:
        LongtailError: It ended, or was not ready in time.
    """
    command = [sys.executable, "-m", "longtail", "serve", "--log-level", "warning"]
    command += ["--drain-delay-s", "0"]  # nobody else asks it
    server = subprocess.Popen(  # noqa: S603
        [*command, "--registry", str(registry), "--port", str(port)], env=os.environ
    )
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise LongtailError(
                f"the service ended with status {server.returncode}; its log stands above"
            )
        try:
            with urllib.request.urlopen(f"{base}/readyz", timeout=5):  # noqa: S310
                return server
        except (urllib.error.URLError, TimeoutError):
            time.sleep(0.2)
    server.kill()
    raise LongtailError(f"the service was not ready within {_START_TIMEOUT_S:.0f} s")


def _post(url: str, body: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(  # noqa: S310
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310
        answer: dict[str, Any] = json.load(response)
        return answer


def _headline(text: str) -> None:
    print(f"\n== {text}", flush=True)


def main() -> None:
    """Run the command; a failure is told in one sentence, with a traceback only where asked for."""
    try:
        _run()
    except Exception as error:  # noqa: BLE001  # the last resort, which ends the process
        sys.exit(_tell(error))
    except KeyboardInterrupt as error:
        sys.exit(_tell(error))


def _run() -> None:
    try:
        app(prog_name="longtail")
    finally:
        with doing("writing to", Path("standard output")):
            sys.stdout.flush()


def _tell(error: BaseException) -> int:
    """Print why a command failed and return its exit status."""
    if isinstance(error, OSError | CommandStoppedError):
        _let_go_of_stdout()
    command = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    failure = explain(error, command)
    with suppress(OSError):  # nobody may read stderr either
        if _is_debugging():
            traceback.print_exception(error)
        if failure.message:
            print(failure.message, file=sys.stderr, flush=True)
    return failure.status


def _is_debugging() -> bool:
    return "--debug" in sys.argv[1:2] or os.environ.get(DEBUG_VARIABLE, "") not in {"", "0"}


def _let_go_of_stdout() -> None:
    """Point stdout to nowhere if it can't be written: Python would fail once more at its end."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if find_spec("training"):  # the image of the service has no training code
    import training.cli

    training.cli.add_commands(app)
    app.command()(demo)
service.cli.add_commands(app)

if __name__ == "__main__":
    main()
