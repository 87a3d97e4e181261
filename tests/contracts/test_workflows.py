"""The workflows of GitHub are as its schema wants them, and each job ends by itself."""

import subprocess
import sys
from pathlib import Path

FILES = sorted(Path(".github/workflows").glob("*.yml"))


def test_workflows_are_valid_and_have_time_limits():
    assert FILES
    for schema in ("vendor.github-workflows", "custom.github-workflows-require-timeout"):
        command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *FILES]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout
