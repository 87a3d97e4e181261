"""The manifests: valid, closed, and of one mind with the service's settings and the rules."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from longtail.service.settings import Settings

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docker" / "kubernetes"
KUBECTL = shutil.which("kubectl") or ""
KUBERNETES = ("1.30", "1.33", "1.36")
needs_kubectl = pytest.mark.skipif(not KUBECTL, reason="needs kubectl")


def read(*parts: str) -> Any:
    return yaml.safe_load(FOLDER.joinpath(*parts).read_text("utf-8"))


@pytest.fixture(scope="module")
def pod():
    return read("base", "deployment.yaml")["spec"]["template"]["spec"]


@pytest.fixture(scope="module")
def container(pod):
    (found,) = pod["containers"]
    return found


@pytest.fixture(scope="module")
def settings_file():
    lines = (FOLDER / "base" / "settings.env").read_text("utf-8").splitlines()
    return dict(line.split("=") for line in lines)


def built(overlay: str) -> dict[str, dict[str, Any]]:
    """Return what `kubectl apply -k docker/kubernetes/OVERLAY` would make, by kind and name."""
    run = subprocess.run(
        [KUBECTL, "kustomize", str(FOLDER / overlay)], capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    made = list(yaml.safe_load_all(run.stdout))
    by_name = {f"{each['kind']}/{each['metadata']['name']}": each for each in made}
    return by_name | {each["kind"]: each for each in made}


@needs_kubectl
@pytest.mark.parametrize("overlay", ["monitoring", "feedback"])
def test_everything_is_valid_by_the_schemas_of_kubernetes(overlay):
    kubernetes_validate = pytest.importorskip("kubernetes_validate")  # brings the schemas
    for each in built(overlay).values():
        if each["apiVersion"] != "monitoring.coreos.com/v1":
            for version in KUBERNETES:
                kubernetes_validate.validate(each, version, strict=True)


def test_pods_can_do_as_little_as_possible(pod, container):
    assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] == 10001
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False  # their variables would be unknown settings
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {x["mountPath"] for x in container["volumeMounts"]} == {
        "/tmp", "/var/lib/longtail/registry"  # noqa: S108
    }  # fmt: skip


def test_variables_are_settings_of_the_service(container, settings_file, setting_variables):
    assert {each["name"] for each in container["env"]} | set(settings_file) <= setting_variables


def test_a_stop_leaves_the_service_the_time_that_it_takes(
    pod, container, settings_file, longest_stop_s
):
    defaults = Settings()
    assert float(settings_file["LONGTAIL_DRAIN_DELAY_S"]) == defaults.drain_delay_s
    assert float(settings_file["LONGTAIL_SHUTDOWN_TIMEOUT_S"]) == defaults.shutdown_timeout_s
    before_s = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod["terminationGracePeriodSeconds"] > before_s + longest_stop_s


def test_the_rules_are_those_of_prometheus():
    rules = yaml.safe_load((ROOT / "docker" / "prometheus" / "rules.yml").read_text("utf-8"))
    assert read("monitoring", "prometheusrule.yaml")["spec"] == rules
