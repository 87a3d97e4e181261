"""What a manifest says of learning: as it was written, and refused where it is of other types."""

import json
from dataclasses import asdict, fields, replace

import pytest

from longtail.models.bundle.learned_from import Followed, LearnedFrom
from longtail.models.bundle.manifest import Manifest
from longtail.models.files.typed_json import json_forms

VALUES = {
    "digest": "ab", "feedback_sha256": "cd", "corpus": "", "unknown_words": 0.5,
    "is_calibrated": True, "judged": dict.fromkeys(("said", "before", "now"), Followed(9, 8, 7)),
}  # fmt: skip
LEARNED = LearnedFrom(**{each.name: VALUES.get(each.name, 3) for each in fields(LearnedFrom)})
to_json, from_json = json_forms(LearnedFrom)


def test_a_manifest_with_and_without_it_comes_back_as_it_was(trained):
    manifest = trained.bundle.manifest
    assert "learned_from" not in manifest.to_json()
    learned = replace(manifest, learned_from=LEARNED)
    again = Manifest.from_json(learned.to_json(), "here")
    assert again.learned_from == LEARNED
    assert again.digest not in {"", manifest.digest}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("version", "1"), ("version", -1), ("new_labels", True), ("digest", 1),
        ("unknown_words", float("nan")), ("is_calibrated", 1), ("judged", {"said": {"texts": 1}}),
        ("surplus", 1),
    ],
)  # fmt: skip
def test_values_of_other_types_are_refused(name, value):
    assert from_json(to_json(LEARNED)) == LEARNED
    with pytest.raises(ValueError, match=r"expected|missing|unknown"):
        from_json(json.dumps(asdict(LEARNED) | {name: value}))
