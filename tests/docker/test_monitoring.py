"""Rules, alerts and dashboard: they ask for metrics that there are, and each alert is tried."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROMETHEUS = ROOT / "docker" / "prometheus"
PROMTOOL = shutil.which("promtool") or ""
needs_promtool = pytest.mark.skipif(not PROMTOOL, reason="needs promtool (Debian: prometheus)")


def promtool(*arguments: str) -> str:
    run = subprocess.run(
        [PROMTOOL, *arguments], cwd=PROMETHEUS, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


@pytest.fixture(scope="module")
def expressions(rules, dashboard):
    queries = [
        target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())
    ]
    (instance,) = dashboard["templating"]["list"]
    choice = re.fullmatch(r"label_values\((.+), instance\)", instance["query"]["query"])
    assert choice
    return [rule["expr"] for rule in rules] + queries + [choice[1]]


@needs_promtool
def test_promtool_accepts_the_rules_and_the_configuration():
    assert "SUCCESS" in promtool("check", "rules", "rules.yml")
    assert "SUCCESS" in promtool("check", "config", "prometheus.yml")


@needs_promtool
def test_every_alert_fires_when_it_should_and_only_then():
    assert "SUCCESS" in promtool("test", "rules", "rules_test.yml")


def test_every_metric_and_label_asked_for_is_one_of_the_service(expressions, unknown_in):
    assert len(expressions) > 50
    assert [x for x in map(unknown_in, expressions) if x] == []
