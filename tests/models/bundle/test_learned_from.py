"""What a manifest says of learning: as it was written, and refused where it is of other types."""

from dataclasses import asdict, fields, replace

import pytest

from longtail.models.bundle.learned_from import Followed, LearnedFrom, learned_from_json
from longtail.models.bundle.manifest import Manifest

VALUES = {
    "int": 3, "str": "ab", "float": 0.5, "bool": True,
    "dict[str, Followed]": {
        name: Followed(9, 8, 7) for name in ("said", "before", "now")
    },
}  # fmt: skip
LEARNED = LearnedFrom(**{each.name: VALUES[each.type] for each in fields(LearnedFrom)})


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
    with pytest.raises(TypeError):
        learned_from_json(asdict(LEARNED) | {name: value})
