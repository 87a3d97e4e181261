"""The manifests: valid, closed, and of one mind with the service's settings and the rules."""

from __future__ import annotations

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
def pod() -> dict[str, Any]:
    return read("base", "deployment.yaml")["spec"]["template"]["spec"]


@pytest.fixture(scope="module")
def container(pod) -> dict[str, Any]:
    (found,) = pod["containers"]
    return found


@pytest.fixture(scope="module")
def settings_file() -> dict[str, str]:
    lines = (FOLDER / "base" / "settings.env").read_text("utf-8").splitlines()
    return dict(line.split("=") for line in lines)


@pytest.fixture(scope="module")
def built() -> dict[str, dict[str, Any]]:
    """What `kubectl apply -k docker/kubernetes/monitoring` would make, by kind."""
    run = subprocess.run(
        [KUBECTL, "kustomize", str(FOLDER / "monitoring")], capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return {each["kind"]: each for each in yaml.safe_load_all(run.stdout)}


@needs_kubectl
@pytest.mark.parametrize("version", KUBERNETES)
def test_everything_is_valid_by_the_schemas_of_kubernetes(version, built) -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate")  # brings the schemas
    own = [x for x in built.values() if x["apiVersion"] != "monitoring.coreos.com/v1"]
    for each in own:
        kubernetes_validate.validate(each, version, strict=True)
    assert len(own) == 8


@needs_kubectl
def test_all_parts_find_the_pods(built) -> None:
    labels = built["Deployment"]["spec"]["template"]["metadata"]["labels"]
    selectors = [
        built["Service"]["spec"]["selector"],
        built["Deployment"]["spec"]["selector"]["matchLabels"],
        built["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
    ]
    assert all(selector and selector.items() <= labels.items() for selector in selectors)
    found = built["ServiceMonitor"]["spec"]["selector"]["matchLabels"]
    assert found.items() <= built["Service"]["metadata"]["labels"].items()


def test_only_clients_reach_the_pods_and_only_at_the_port_of_the_service(container) -> None:
    spec = read("base", "networkpolicy.yaml")["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    (ingress,) = spec["ingress"]
    assert [x["port"] for x in ingress["ports"]] == [x["name"] for x in container["ports"]]
    assert ingress["from"] and all(
        x["podSelector"]["matchExpressions"] and "matchLabels" not in x["podSelector"]
        for x in ingress["from"]
    )
    (egress,) = spec["egress"]
    assert {x["port"] for x in egress["ports"]} == {53}


@needs_kubectl
def test_the_network_policy_is_about_the_pods_and_leaves_the_clients_as_they_are(built) -> None:
    labels = built["Deployment"]["spec"]["template"]["metadata"]["labels"]
    policy = built["NetworkPolicy"]["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    assert policy["ingress"] == read("base", "networkpolicy.yaml")["spec"]["ingress"]


@needs_kubectl
def test_changed_settings_roll_the_pods(built) -> None:
    (container,) = built["Deployment"]["spec"]["template"]["spec"]["containers"]
    (source,) = container["envFrom"]
    name = built["ConfigMap"]["metadata"]["name"]
    assert source["configMapRef"]["name"] == name != "longtail-settings"


def test_pods_can_do_as_little_as_possible(pod, container) -> None:
    assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] == 10001
    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {x["mountPath"] for x in container["volumeMounts"]} == {
        "/tmp", "/var/lib/longtail/registry"  # noqa: S108
    }  # fmt: skip


def test_one_pod_keeps_feedback_on_a_disk_of_its_own(setting_variables) -> None:
    claim, overlay = read("feedback", "claim.yaml"), read("feedback", "kustomization.yaml")
    assert claim["spec"]["accessModes"] == ["ReadWriteOncePod"]
    files = {"Deployment": "deployment.yaml", "HorizontalPodAutoscaler": "autoscaling.yaml"}
    made = {}
    for patch in overlay["patches"]:
        kind = patch["target"]["kind"]
        made[kind] = read("base", files[kind])
        assert patch["target"]["name"] == made[kind]["metadata"]["name"]
        for step in yaml.safe_load(patch["patch"]):
            apply(made[kind], **step)
    spec = made["Deployment"]["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    assert spec["strategy"] == {"type": "Recreate"}
    volume, mount = spec["template"]["spec"]["volumes"][-1], container["volumeMounts"][-1]
    assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert volume["name"] == mount["name"] and container["env"][-1]["value"] == mount["mountPath"]
    assert container["env"][-1]["name"] in setting_variables
    replicas = made["HorizontalPodAutoscaler"]["spec"]
    assert replicas["minReplicas"] == replicas["maxReplicas"] == 1


def apply(manifest: Any, op: str, path: str, value: Any) -> None:
    """Do a step of a JSON patch (RFC 6902), as far as these manifests use them."""
    *steps, last = path.split("/")[1:]
    place = manifest
    for step in steps:
        place = place[int(step)] if isinstance(place, list) else place[step]
    if isinstance(place, list):
        assert (op, last) == ("add", "-")
        place.append(value)
    else:
        assert op == "add" or last in place
        place[last] = value


def test_variables_of_the_cluster_do_not_stop_the_service(pod) -> None:
    assert pod["enableServiceLinks"] is False


def test_variables_are_settings_of_the_service(container, settings_file, setting_variables) -> None:
    assert {each["name"] for each in container["env"]} | set(settings_file) <= setting_variables


def test_a_stop_leaves_the_service_the_time_that_it_takes(
    pod, container, settings_file, longest_stop_s
) -> None:
    defaults = Settings()
    assert float(settings_file["LONGTAIL_DRAIN_DELAY_S"]) == defaults.drain_delay_s
    assert float(settings_file["LONGTAIL_SHUTDOWN_TIMEOUT_S"]) == defaults.shutdown_timeout_s
    before_s = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod["terminationGracePeriodSeconds"] > before_s + longest_stop_s


def test_probes_ask_routes_of_the_service(container) -> None:
    asked = {
        name: container[f"{name}Probe"]["httpGet"]["path"]
        for name in ("startup", "readiness", "liveness")
    }
    assert asked == {"startup": "/readyz", "readiness": "/readyz", "liveness": "/livez"}


def test_the_autoscaler_goes_by_a_metric_of_the_service(samples) -> None:
    (metric,) = read("base", "autoscaling.yaml")["spec"]["metrics"]
    (rule,) = read("monitoring", "adapter-values.yaml")["rules"]["custom"]
    name = metric["pods"]["metric"]["name"]
    assert name in samples and rule["seriesQuery"].startswith(f"{name}{{")
    assert int(metric["pods"]["target"]["averageValue"]) < Settings().max_queue_tokens / 2


def test_the_rules_are_those_of_prometheus() -> None:
    rules = yaml.safe_load((ROOT / "docker" / "prometheus" / "rules.yml").read_text("utf-8"))
    assert read("monitoring", "prometheusrule.yaml")["spec"] == rules


def test_memory_is_as_much_as_the_rules_say(container, rules) -> None:
    (limit,) = (
        rule["expr"] for rule in rules if rule.get("record") == "longtail:memory_limit_bytes"
    )
    assert container["resources"]["limits"]["memory"] == "4Gi"
    assert limit == "vector(4 * 1024 * 1024 * 1024)"
