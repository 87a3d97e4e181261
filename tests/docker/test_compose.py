"""The compose file: valid, closed, and of one mind with the service's settings."""

import json
import re
from importlib.resources import files
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OURS = ("service", "service-gpu", "training")


def test_it_is_valid_by_the_schema_of_the_compose_specification(compose):
    pytest.importorskip("check_jsonschema")  # brings the schema
    from jsonschema.validators import validator_for

    folder = files("check_jsonschema").joinpath("builtin_schemas", "vendor")
    schema = json.loads(folder.joinpath("compose-spec.json").read_text("utf-8"))
    errors = [error.message for error in validator_for(schema)(schema).iter_errors(compose)]
    assert errors == []


def test_every_container_can_do_as_little_as_possible(compose):
    for service in compose["services"].values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        limits = service["deploy"]["resources"]["limits"]
        assert {"memory", "pids"} <= set(limits)
        assert "privileged" not in service and "user" not in service


def test_a_stop_leaves_the_service_the_time_that_it_takes(compose, longest_stop_s):
    for name in ("service", "service-gpu"):
        grace_s = float(compose["services"][name]["stop_grace_period"].removesuffix("s"))
        assert grace_s > longest_stop_s


def test_feedback_and_registry_survive_their_containers(compose):
    """Volumes take the owner of the image's folder, which the service must be able to write to."""
    for name in OURS:
        service = compose["services"][name]
        mounts = dict(reversed(each.split(":")[:2]) for each in service["volumes"])
        made = (ROOT / service["build"]["dockerfile"]).read_text("utf-8")
        for part in ("registry", "feedback"):
            assert mounts[f"/var/lib/longtail/{part}"] == part and part in compose["volumes"]
            assert re.search(rf"install -d -o 10001 .*/var/lib/longtail/{part}", made, re.DOTALL)
        if name != "training":
            assert service["environment"]["LONGTAIL_FEEDBACK"] == "/var/lib/longtail/feedback"


def test_variables_are_settings_of_the_service(compose, setting_variables):
    for name in ("service", "service-gpu"):
        assert set(compose["services"][name]["environment"]) <= setting_variables
