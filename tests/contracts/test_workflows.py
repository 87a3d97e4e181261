"""The workflows of GitHub run no action that could change, and may do little."""

import re
from pathlib import Path

import yaml


def test_actions_are_named_by_commit_and_jobs_say_what_they_may_do():
    for path in sorted(Path(".github/workflows").glob("*.yml")):
        text = path.read_text("utf-8")
        used = re.findall(r"uses: (.*)", text)
        assert used and all(re.fullmatch(r"\S+@[0-9a-f]{40} # v\S+", each) for each in used)
        content = yaml.safe_load(text)
        assert content["permissions"] == {}
        assert all({"permissions", "timeout-minutes"} <= set(x) for x in content["jobs"].values())
