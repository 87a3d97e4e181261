"""The images: a user without rights, exact versions, and nothing that serves no end."""

import ast
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
DOCKERFILES = sorted(DOCKER.glob("*.Dockerfile"))
BY_TARGET = {"torch", "faiss-gpu"}
OPTIONAL = {"mcp", "pandas", "pyarrow", "pyoxigraph", "ray"}
"""Packages of the service that are not in its image: see EXTRA_PACKAGES."""
PACKAGE_OF = {"sklearn": "scikit-learn", "faiss": "faiss-gpu", "opentelemetry": "opentelemetry-sdk",
              "Stemmer": "pystemmer"}  # fmt: skip
BROUGHT_BY_OTHERS = {
    "starlette": "fastapi",
    "pydantic_core": "pydantic",
    "tokenizers": "transformers",
}


def instructions(path: Path) -> list[tuple[str, str]]:
    """Return the instructions of a Dockerfile, each with all of its lines in one."""
    lines = [x for x in path.read_text("utf-8").splitlines() if x.strip() and not x.startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines)).splitlines()
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in joined)]


def values(path: Path, instruction: str) -> list[str]:
    return [rest for name, rest in instructions(path) if name == instruction]


def normalised(requirement: str) -> str:
    return re.split(r"[<>=\[; ]", requirement)[0].lower().replace("_", "-")


@pytest.fixture(scope="module")
def of_service():
    lines = (DOCKER / "service-requirements.txt").read_text("utf-8").splitlines()
    return {line for line in lines if not line.startswith("#")}


dockerfile = pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.stem)


@dockerfile
def test_it_runs_as_a_user_without_rights(path):
    assert values(path, "USER") == ["10001:10001"]
    text = path.read_text("utf-8")
    assert text.index("AS runtime") < text.index("USER 10001:10001") < text.index("AS gpu")


@dockerfile
def test_everything_that_is_installed_is_of_the_constraints(path):
    installs = [
        " ".join(x.split())
        for rest in values(path, "RUN")
        for x in rest.split("&&")
        if " install " in x and "pip" in x
    ]
    assert len(installs) >= 5
    for command in installs:
        own = "--target /opt/longtail dist/*.whl" in command
        by_hash = "--require-hashes --requirement" in command or command.endswith("-r torch.txt")
        no_more = own or by_hash
        assert "--no-deps" in command if no_more else "--constraint constraints.txt" in command


def test_every_package_that_the_service_imports_is_in_its_image(of_service):
    found = {normalised(PACKAGE_OF.get(name, name)) for name in imported_by("models", "service")}
    assert (
        found - of_service - BY_TARGET - OPTIONAL - {normalised(x) for x in BROUGHT_BY_OTHERS}
        == set()
    )
    assert set(BROUGHT_BY_OTHERS.values()) <= of_service


def imported_by(*packages: str) -> Iterator[str]:
    own = {"longtail"} | set(sys.stdlib_module_names)
    for path in (path for package in packages for path in (ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [x.name for x in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            yield from {name.split(".")[0] for name in names} - own


WITHOUT_TRAINING = """
import sys
for name in ("longtail.training", "matplotlib", "ray"):
    sys.modules[name] = None
import longtail, longtail.service.app
assert longtail.Model
from typer.testing import CliRunner
print(CliRunner().invoke(longtail.app, ["--help"]).output)
"""


def test_the_service_starts_without_training_code_and_what_only_that_needs():
    run = subprocess.run(
        [sys.executable, "-c", WITHOUT_TRAINING], cwd=ROOT, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    commands = set(re.findall(r"│ (\w+) ", run.stdout))
    assert {"serve", "predict", "registry"} <= commands and not {"train", "demo"} & commands


def health(port: int) -> int:
    """Return the exit code of the health check; a proxy of its environment is not asked."""
    proxy = "http://127.0.0.1:9"
    environment = {"LONGTAIL_PORT": str(port), "http_proxy": proxy, "HTTP_PROXY": proxy}
    command = [sys.executable, "-I", str(DOCKER / "healthcheck.py")]
    return subprocess.run(
        command, env=environment, timeout=300, check=False, capture_output=True
    ).returncode


class Ready(BaseHTTPRequestHandler):
    statuses = iter((200, 503))

    def do_GET(self) -> None:
        self.send_response(next(self.statuses) if self.path == "/readyz" else 404)
        self.end_headers()


def test_the_health_check_goes_by_readiness():
    with HTTPServer(("127.0.0.1", 0), Ready) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        assert [health(server.server_port), health(server.server_port)] == [0, 1]
        server.shutdown()
    assert health(server.server_port) == 1  # nobody listens
