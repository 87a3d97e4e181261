"""The files of the deployment, and the metrics that the service really has."""

import json
import re
from collections import Counter, defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from longtail.models.feedback import Entry
from longtail.service.server import _GRACE_S
from longtail.service.settings import PREFIX, Settings
from longtail.service.telemetry.metrics import Telemetry
from longtail.service.versions.serving import Canary, ServedModel, Serving

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"


def read_yaml(*parts: str) -> Any:
    return yaml.safe_load(ROOT.joinpath(*parts).read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def compose():
    return read_yaml("docker-compose.yml")


@pytest.fixture(scope="session")
def rules():
    groups = read_yaml("docker", "prometheus", "rules.yml")["groups"]
    return [rule for group in groups for rule in group["rules"]]


@pytest.fixture(scope="session")
def alerts(rules):
    return {rule["alert"]: rule for rule in rules if "alert" in rule}


@pytest.fixture(scope="session")
def dashboard():
    path = DOCKER / "grafana" / "dashboards" / "longtail.json"
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def samples():
    """Every sample of `/metrics` after one of all that can happen: name, labels, their values."""
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
    said = {("accepted", "1"): 1, ("rejected", "1"): 1}
    entry = Entry(version=1, accepted=("a",), promised=("a",), promised_precision=0.95)
    telemetry.feedback.count(entry, Counter(said), is_new=True)
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for family in text_string_to_metric_families(telemetry.exposition().decode()):
        for sample in family.samples:
            labels = found[sample.name]
            for name, value in sample.labels.items():
                labels[name].add(value)
    return found


@pytest.fixture(scope="session")
def unknown_in(samples, rules):
    """Return the metrics and the labels of an expression that the service does not have."""
    labels_of = {name: set(labels) for name, labels in samples.items()}
    labels_of |= {rule["record"]: set() for rule in rules if "record" in rule}

    def unknown(expression: str) -> list[str]:
        bare = re.sub(r'"[^"]*"', '""', expression)
        wrong = [
            x for x in re.findall(r"\b(?:longtail|process)[_:][\w:]+", bare) if x not in labels_of
        ]
        for name, matchers in re.findall(r"\b((?:longtail|process)[_:][\w:]+)\{([^}]*)\}", bare):
            known = labels_of.get(name, set()) | {"instance", "job"}
            labels = re.findall(r"(\w+)\s*[=!]", matchers)
            wrong += [f"{name}{{{x}}}" for x in labels if x not in known]
        return wrong

    return unknown


@pytest.fixture(scope="session")
def setting_variables():
    return {PREFIX + name.upper() for name in Settings.model_fields}


@pytest.fixture(scope="session")
def longest_stop_s():
    """Seconds from SIGTERM to the end of the process, at the most, with the default settings."""
    settings = Settings()
    return settings.drain_delay_s + settings.shutdown_timeout_s + _GRACE_S
