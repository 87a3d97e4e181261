"""What a folder is for is noted there, and no other work is mixed with it."""

import json

import pytest

from longtail.models.errors import ConfigError
from longtail.training.runtime.claims import claim


def test_a_folder_says_what_it_is_for_and_is_taken_up_by_the_same(tmp_path):
    path, content = tmp_path / "run.json", {"seed": 1, "scorers": ("sparse",)}
    for _ in range(2):
        claim(path, content, "run", "--work")
    assert json.loads(path.read_text()) == {"seed": 1, "scorers": ["sparse"]}


def test_a_folder_of_other_work_is_refused_with_what_differs(tmp_path):
    path = tmp_path / "run.json"
    claim(path, {"seed": 1, "a": 2}, "run", "--work")
    with pytest.raises(ConfigError, match=r"another run \(its b, seed differs\); choose .* --work"):
        claim(path, {"seed": 2, "a": 2, "b": 3}, "run", "--work")
