"""The workflows of GitHub are as its schema wants them, end by themselves, and may do little."""

import re
import subprocess
import sys
from pathlib import Path

import yaml

FILES = sorted(Path(".github/workflows").glob("*.yml"))


def test_workflows_are_valid_and_have_time_limits():
    assert FILES
    for schema in ("vendor.github-workflows", "custom.github-workflows-require-timeout"):
        command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *FILES]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


def test_actions_are_named_by_commit_and_jobs_say_what_they_may_do():
    for path in FILES:
        text = path.read_text("utf-8")
        used = re.findall(r"uses: (.*)", text)
        assert used and all(re.fullmatch(r"\S+@[0-9a-f]{40} # v\S+", each) for each in used)
        content = yaml.safe_load(text)
        assert content["permissions"] == {}
        assert all("permissions" in job for job in content["jobs"].values())


def test_nothing_is_published_that_was_not_built_from_the_source_and_tried():
    jobs = yaml.safe_load(Path(".github/workflows/release.yml").read_text("utf-8"))["jobs"]
    assert {"try", "try-musl"} <= set(jobs["publish"]["needs"])
    assert jobs["try"]["needs"] == jobs["try-musl"]["needs"] == "wheels"
    assert jobs["wheels"]["needs"] == "source"
    assert not any("checkout" in step.get("uses", "") for step in jobs["wheels"]["steps"])
