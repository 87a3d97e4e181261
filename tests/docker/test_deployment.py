"""The files of the deployment: closed, and of one mind with the service that they run."""

import ast
import json
import re
import shutil
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from packaging.utils import canonicalize_name
from prometheus_client.parser import text_string_to_metric_families

from longtail.models.feedback import Entry
from longtail.service.server import _GRACE_S
from longtail.service.settings import PREFIX, Settings
from longtail.service.telemetry.metrics import Telemetry
from longtail.service.versions.serving import Canary, ServedModel, Serving

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
DOCKERFILES = sorted(DOCKER.glob("*.Dockerfile"))
LOCKS = sorted(DOCKER.glob("*.lock"))
SETTINGS = {PREFIX + name.upper() for name in Settings.model_fields}
LONGEST_STOP_S = Settings().drain_delay_s + Settings().shutdown_timeout_s + _GRACE_S
"""Seconds from SIGTERM to the end of the process, at the most, with the default settings."""
NOT_IN_THE_IMAGE = {"faiss-gpu", "mcp", "pandas", "pyarrow", "pyoxigraph", "ray", "torch"}
PACKAGE_OF = {
    "sklearn": "scikit-learn", "faiss": "faiss-gpu", "opentelemetry": "opentelemetry-sdk",
    "Stemmer": "pystemmer", "starlette": "fastapi", "pydantic_core": "pydantic",
    "tokenizers": "transformers",
}  # fmt: skip


def read_yaml(*parts: str) -> Any:
    return yaml.safe_load(DOCKER.joinpath(*parts).read_text(encoding="utf-8"))


COMPOSE = read_yaml("..", "docker-compose.yml")["services"]
POD = read_yaml("kubernetes", "base", "deployment.yaml")["spec"]["template"]["spec"]
RULES = read_yaml("prometheus", "rules.yml")


def of_metrics() -> dict[str, set[str]]:
    """Return the labels of each sample of `/metrics` after one of all that can happen."""
    telemetry = Telemetry()
    telemetry.watch_queue(lambda: 1)
    telemetry.observe_request("POST", "/v1/predict", 200, 0.1)
    telemetry.observe_predict("sparse", 1, 0.1)
    telemetry.observe_phase("queue", 0.1)
    telemetry.observe_batch(1, 10)
    telemetry.count_line("result")
    telemetry.count_problem("overloaded")
    model = ServedModel(1, "digest", SimpleNamespace())  # type: ignore[arg-type]
    serving = Serving({1: model}, default=1, current=1, canary=Canary(2, 0.1))
    telemetry.models.set_models(serving.models, serving.shares, {3: 1})
    telemetry.models.observe_load("loaded", 1)
    telemetry.models.count_change("activate", "failed")
    telemetry.models.set_overlap(1, 0.5)
    telemetry.models.set_registry_problem(True)
    entry = Entry(version=1, accepted=("a",), promised=("a",), promised_precision=0.95)
    telemetry.feedback.count(entry, Counter({("accepted", "1"): 1}), is_new=True)
    found: dict[str, set[str]] = defaultdict(set)
    for family in text_string_to_metric_families(telemetry.exposition().decode()):
        for sample in family.samples:
            found[sample.name] |= set(sample.labels)
    return found


def test_every_metric_and_label_asked_for_is_one_of_the_service():
    path = DOCKER / "grafana" / "dashboards" / "longtail.json"
    panels = json.loads(path.read_text(encoding="utf-8"))["panels"]
    rules = [rule for group in RULES["groups"] for rule in group["rules"]]
    asked = [rule["expr"] for rule in rules]
    asked += [target["expr"] for panel in panels for target in panel.get("targets", ())]
    assert len(asked) > 50
    known = of_metrics() | {rule["record"]: set() for rule in rules if "record" in rule}
    for expression in asked:
        bare = re.sub(r'"[^"]*"', '""', expression)
        assert set(re.findall(r"\b(?:longtail|process)[_:][\w:]+", bare)) <= known.keys()
        for name, matchers in re.findall(r"\b((?:longtail|process)[_:][\w:]+)\{([^}]*)\}", bare):
            assert set(re.findall(r"(\w+)\s*[=!]", matchers)) <= known[name] | {"instance", "job"}
    assert read_yaml("kubernetes", "monitoring", "prometheusrule.yaml")["spec"] == RULES


@pytest.mark.skipif(not shutil.which("promtool"), reason="needs promtool (Debian: prometheus)")
@pytest.mark.parametrize(
    "words", ["check rules rules.yml", "check config prometheus.yml", "test rules rules_test.yml"]
)
def test_every_alert_fires_when_it_should_and_only_then(words):
    subprocess.run(["promtool", *words.split()], cwd=DOCKER / "prometheus", check=True)  # noqa: S607


def test_variables_are_settings_of_the_service():
    (container,) = POD["containers"]
    lines = (DOCKER / "kubernetes" / "base" / "settings.env").read_text("utf-8").splitlines()
    named = {line.split("=")[0] for line in lines} | {each["name"] for each in container["env"]}
    for name in ("service", "service-gpu"):
        named |= set(COMPOSE[name]["environment"])
    assert named <= SETTINGS


def test_containers_can_do_as_little_as_possible():
    for service in COMPOSE.values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert {"memory", "pids"} <= set(service["deploy"]["resources"]["limits"])
        assert "privileged" not in service and "user" not in service
    (container,) = POD["containers"]
    assert POD["securityContext"]["runAsNonRoot"] and POD["securityContext"]["runAsUser"] == 10001
    assert POD["automountServiceAccountToken"] is False
    assert POD["enableServiceLinks"] is False  # their variables would be unknown settings
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_a_stop_leaves_the_service_the_time_that_it_takes():
    for name in ("service", "service-gpu"):
        assert float(COMPOSE[name]["stop_grace_period"].removesuffix("s")) > LONGEST_STOP_S
    before_s = POD["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert POD["terminationGracePeriodSeconds"] > before_s + LONGEST_STOP_S


def test_feedback_and_registry_survive_their_containers():
    """Volumes take the owner of the image's folder, which the service must be able to write to."""
    for name in ("service", "service-gpu", "training"):
        mounts = dict(reversed(each.split(":")[:2]) for each in COMPOSE[name]["volumes"])
        made = (ROOT / COMPOSE[name]["build"]["dockerfile"]).read_text("utf-8")
        for part in ("registry", "feedback"):
            assert mounts[f"/var/lib/longtail/{part}"] == part
            assert re.search(rf"install -d -o 10001 .*/var/lib/longtail/{part}", made, re.DOTALL)


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.stem)
def test_an_image_runs_as_a_user_without_rights_and_installs_by_constraints_or_hash(path):
    text = path.read_text("utf-8")
    assert re.findall(r"^USER (.*)$", text, re.M) == ["10001:10001"]
    assert text.index("AS runtime") < text.index("USER 10001:10001") < text.index("AS gpu")
    bare = re.sub(r"^#.*\n", "", text, flags=re.M)
    runs = re.findall(r"^RUN (.*)$", re.sub(r"\\\n\s*", " ", bare), re.M)
    parts = [" ".join(part.split()) for run in runs for part in run.split("&&")]
    installs = [part for part in parts if " install " in part and "pip" in part]
    assert len(installs) >= 5
    for command in installs:
        own = "--target /opt/longtail dist/*.whl" in command
        by_hash = "--require-hashes --requirement" in command or command.endswith("-r torch.txt")
        assert ("--no-deps" if own or by_hash else "--constraint constraints.txt") in command


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.stem)
def test_each_package_has_a_hash_and_the_version_of_the_constraints(path):
    hashed = r"^([\w.-]+)==(\S+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)$"
    found = pins(path)
    assert found and len(found) == len(re.findall(hashed, path.read_text("utf-8"), re.M))
    constraints = pins(DOCKER / "constraints.txt")
    if path.stem.endswith("gpu"):
        constraints |= pins(DOCKER / "constraints-gpu.txt")
        # PyTorch names the exact versions of its CUDA libraries itself.
        of_cuda = ("cuda-", "nvidia-", "triton")
        found = {x: y for x, y in found.items() if not x.startswith(of_cuda)}
    assert found.items() <= constraints.items()


def pins(path: Path) -> dict[str, str]:
    """Return the version of each package of a file of exact versions."""
    found = re.findall(r"^([\w.-]+)==(\S+)", path.read_text("utf-8"), re.MULTILINE)
    return {canonicalize_name(name): version for name, version in found}


def test_every_package_that_the_service_imports_is_in_its_image():
    lines = (DOCKER / "service-requirements.txt").read_text("utf-8").splitlines()
    imported = set()
    for path in (x for package in ("models", "service") for x in (ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {each.name.split(".")[0] for each in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported.add(node.module.split(".")[0])
    imported -= {"longtail", *sys.stdlib_module_names}
    names = {canonicalize_name(PACKAGE_OF.get(name, name)) for name in imported}
    assert names <= {line for line in lines if not line.startswith("#")} | NOT_IN_THE_IMAGE


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
    command = [sys.executable, "-c", WITHOUT_TRAINING]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    commands = set(re.findall(r"│ (\w+) ", run.stdout))
    assert {"serve", "predict", "registry"} <= commands and not {"train", "demo"} & commands


def health(port: int) -> int:
    """Return the exit code of the health check; a proxy of its environment is not asked."""
    proxy = "http://127.0.0.1:9"
    environment = {"LONGTAIL_PORT": str(port), "http_proxy": proxy, "HTTP_PROXY": proxy}
    command = [sys.executable, "-I", str(DOCKER / "healthcheck.py")]
    return subprocess.run(command, env=environment, check=False, capture_output=True).returncode


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
