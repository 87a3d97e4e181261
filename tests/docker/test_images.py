"""The images: a user without rights, exact versions, and nothing that serves no end."""

from __future__ import annotations

import ast
import fnmatch
import re
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
DOCKERFILES = sorted(DOCKER.glob("*.Dockerfile"))
TRAINING_ONLY = {"pyyaml"}
BY_TARGET = {"torch", "faiss-cpu", "faiss-gpu-cuvs"}
OPTIONAL = {"onnx", "onnxruntime", "onnxscript", "pandas", "pyoxigraph", "ray"}
"""Of the service, but not in its image: see EXTRA_PACKAGES."""
PACKAGE_OF = {"sklearn": "scikit-learn", "faiss": "faiss-cpu", "opentelemetry": "opentelemetry-sdk"}
BROUGHT_BY_OTHERS = {
    "starlette": "fastapi",
    "pydantic_core": "pydantic",
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
def project() -> dict[str, list[str]]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


@pytest.fixture(scope="module")
def of_service() -> set[str]:
    lines = (DOCKER / "service-requirements.txt").read_text("utf-8").splitlines()
    return {line for line in lines if not line.startswith("#")}


@pytest.fixture(scope="module")
def pinned() -> set[str]:
    lines = (DOCKER / "constraints.txt").read_text("utf-8").splitlines()
    return {normalised(line) for line in lines if "==" in line}


dockerfile = pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.stem)


@dockerfile
def test_it_has_a_target_for_processors_and_one_for_gpus(path: Path) -> None:
    stages = [rest.split(" AS ")[1] for rest in values(path, "FROM")]
    assert {"cpu", "gpu"} <= set(stages)
    assert stages[-1] == "cpu"  # what is built where no target is named


@dockerfile
def test_it_runs_as_a_user_without_rights(path: Path) -> None:
    assert values(path, "USER") == ["10001:10001"]
    text = path.read_text("utf-8")
    assert text.index("AS runtime") < text.index("USER 10001:10001") < text.index("AS gpu")


@dockerfile
def test_everything_that_is_installed_is_of_the_constraints(path: Path) -> None:
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


@dockerfile
def test_it_installs_no_compiler_and_no_package_of_the_system(path: Path) -> None:
    text = path.read_text("utf-8")
    assert re.findall(r"apt-get|apk |gcc|g\+\+|build-essential|curl|wget", text) == []


@dockerfile
def test_it_holds_no_secret_and_no_address_but_the_index_of_pytorch(path: Path) -> None:
    names = [x.split("=")[0] for x in values(path, "ARG") + " ".join(values(path, "ENV")).split()]
    assert [x for x in names if re.search(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", x)] == []
    addresses = re.findall(r"https?://[\w./-]+", path.read_text("utf-8"))
    assert addresses == ["https://download.pytorch.org/whl/cpu"]


@dockerfile
def test_what_it_copies_is_let_through_to_the_build_and_little_else(path: Path) -> None:
    lines = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    assert lines[1] == "*"
    allowed = [line.removeprefix("!").removesuffix("/**") for line in lines if line.startswith("!")]
    sources = [
        word for rest in values(path, "COPY") if "--from" not in rest
        for word in rest.split()[:-1] if not word.startswith("--")
    ]  # fmt: skip
    assert sources and set(sources) <= set(allowed)
    assert not fnmatch.filter(allowed, "*registry*") and ".git" not in allowed


@dockerfile
def test_it_is_labelled_by_release_and_revision(path: Path) -> None:
    labels = " ".join(values(path, "LABEL"))
    for label, value in (("version", "VERSION"), ("revision", "REVISION")):
        assert f'org.opencontainers.image.{label}="${{{value}}}"' in labels
    assert re.search(r"\$\(date|\bcreated", path.read_text("utf-8")) is None


@dockerfile
def test_caches_go_to_the_one_folder_that_can_be_written_to(path: Path) -> None:
    variables = dict(x.split("=", 1) for x in " ".join(values(path, "ENV")).split())
    caches = {variables[name] for name in ("HOME", "XDG_CACHE_HOME")}
    assert all(folder.split("/")[1] == "tmp" for folder in caches)
    assert variables["PYTHONDONTWRITEBYTECODE"] == "1"


def test_variables_of_the_images_are_settings(setting_variables) -> None:
    for path in DOCKERFILES:
        names = {x.split("=")[0] for x in " ".join(values(path, "ENV")).split()}
        assert {x for x in names if x.startswith("LONGTAIL_")} <= setting_variables


def test_the_image_of_the_service_has_no_training_code() -> None:
    path = DOCKER / "service.Dockerfile"
    assert [x for x in values(path, "COPY") if "training" in x] == []
    assert [x for x in values(path, "COPY") if x.startswith((". ", "./ "))] == []


def test_every_dependency_is_of_the_service_or_of_training_only(project, of_service) -> None:
    extras = project["optional-dependencies"]
    used = [*project["dependencies"], *extras["cpu"], *extras["otel"], *extras["sharing"]]
    declared = {normalised(x) for x in used}
    unsorted = declared - of_service - TRAINING_ONLY - BY_TARGET
    assert unsorted == set(), "name them in docker/service-requirements.txt or in TRAINING_ONLY"
    assert of_service <= declared


def test_every_package_that_the_service_imports_is_in_its_image(of_service) -> None:
    found = {normalised(PACKAGE_OF.get(name, name)) for name in imported_by("models", "service")}
    assert (
        found - of_service - BY_TARGET - OPTIONAL - {normalised(x) for x in BROUGHT_BY_OTHERS}
        == set()
    )
    assert set(BROUGHT_BY_OTHERS.values()) <= of_service


def test_every_package_of_the_image_has_an_exact_version(of_service, pinned) -> None:
    assert of_service | BY_TARGET | {"setuptools"} <= pinned


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
for name in ("longtail.training", "matplotlib", "spacy_lookups_data", "onnxscript", "ray"):
    sys.modules[name] = None
import longtail, longtail.service.app
assert longtail.Model
from typer.testing import CliRunner
print(CliRunner().invoke(longtail.app, ["--help"]).output)
"""


def test_the_service_starts_without_training_code_and_what_only_that_needs() -> None:
    run = subprocess.run(
        [sys.executable, "-c", WITHOUT_TRAINING], cwd=ROOT, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    commands = set(re.findall(r"│ (\w+) ", run.stdout))
    assert {"serve", "predict", "registry"} <= commands and not {"train", "demo"} & commands


@contextmanager
def answering(status: int) -> Iterator[int]:
    """Yield a port on which every request is answered with a status."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/readyz" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def health(port: int, **environment: str) -> int:
    environment = {"LONGTAIL_PORT": str(port)} | environment
    command = [sys.executable, "-I", str(DOCKER / "healthcheck.py")]
    return subprocess.run(
        command, env=environment, timeout=300, check=False, capture_output=True
    ).returncode


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
def test_the_health_check_goes_by_readiness(status: int, code: int) -> None:
    with answering(status) as port:
        assert health(port) == code


def test_the_health_check_asks_no_proxy() -> None:
    with answering(200) as port:
        assert health(port, http_proxy="http://127.0.0.1:9", HTTP_PROXY="http://127.0.0.1:9") == 0


def test_the_health_check_fails_where_nobody_listens() -> None:
    with answering(200) as port:
        pass
    assert health(port) == 1


def test_the_image_of_the_service_has_the_health_check() -> None:
    (check,) = values(DOCKER / "service.Dockerfile", "HEALTHCHECK")
    assert check.endswith('CMD ["python", "-I", "/opt/healthcheck.py"]')
