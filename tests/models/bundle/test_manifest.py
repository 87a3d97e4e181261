"""A manifest says what is in the bundle, or the bundle is refused: also with a fitting digest."""

import itertools
import json
from collections.abc import Callable
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import pytest

from longtail.models.bundle.bundle import open_bundle
from longtail.models.bundle.manifest import (
    Calibration,
    LearnedFrom,
    Manifest,
    RarityBlend,
    digest_of,
)
from longtail.models.errors import BundleCorruptError, BundleError, BundleVersionError
from longtail.models.files.typed_json import json_forms
from longtail.models.kinds.storage import read_parts


def refusal(folder: Path) -> str:
    """Open a bundle completely and return why that is refused."""
    with pytest.raises(BundleCorruptError) as error:
        read_parts(open_bundle(folder))
    return str(error.value)


def set_at(*path: Any, to: object) -> Callable[[dict[str, Any]], None]:
    def change(content: Any) -> None:
        for key in path[:-1]:
            content = content[key]
        content[path[-1]] = to

    return change


def drop(*path: Any) -> Callable[[dict[str, Any]], None]:
    def change(content: Any) -> None:
        for key in path[:-1]:
            content = content[key]
        del content[path[-1]]

    return change


VECTORS = ("tensors", "retrieval.safetensors", "label_vectors")


def test_the_digest_depends_on_every_field_but_not_on_their_order(manifest):
    content = json.loads(manifest.to_json())
    digest = digest_of(content)
    assert digest_of(dict(reversed(content.items()))) == digest == content["digest"]
    others = {digest_of({**content, key: "changed"}) for key in content if key != "digest"}
    assert len(others) == len(content) - 1 and digest not in others


def test_every_flipped_character_is_refused(manifest):
    text = manifest.to_json()
    for position, mask in itertools.product(range(len(text)), (0x01, 0x20)):
        changed = text[:position] + chr(ord(text[position]) ^ mask) + text[position + 1 :]
        with pytest.raises(BundleError):
            Manifest.from_json(changed, "here")


@pytest.mark.parametrize("version", [2, 0, True, 1.0, "1", None])
def test_another_format_version_is_refused_by_its_number(lie, version):
    with pytest.raises(BundleVersionError, match=rf"format version {version!r}, expected 1"):
        open_bundle(lie(set_at("format_version", to=version)))


@pytest.mark.parametrize("text", ["", "[]", "null", "{}", '"x"', "{", '{"format_version"}'])
def test_what_is_no_manifest_is_refused(bundle_folder, text):
    (bundle_folder / "manifest.json").write_text(text)
    with pytest.raises(BundleCorruptError, match=r"manifest\.json is not a bundle's manifest"):
        open_bundle(bundle_folder)


@pytest.mark.parametrize(
    ("change", "file", "words"),
    [
        (set_at(*VECTORS, "shape", to=[7, 17]), "retrieval.safetensors", "says F32 of shape"),
        (set_at(*VECTORS, "dtype", to="F16"), "retrieval.safetensors", "manifest says F16"),
        (drop("tensors", "sparse.safetensors"), "sparse.safetensors", "manifest says missing"),
        (
            set_at("tensors", "../x.safetensors", to={"x": {"shape": [1], "dtype": "F32"}}),
            "../x.safetensors",
            "is not safetensors",
        ),
        (set_at("label_count", to=8), "labels.jsonl", "has 7 labels, manifest says 8"),
        (set_at("files", "sparse.json", "sha256", to="0" * 64), "sparse.json", "sha256"),
        (drop("files", "sparse.json"), "sparse.json", "is not in the manifest"),
        (
            set_at("files", "../x", to={"sha256": "0" * 64, "size_bytes": 1}),
            "../x",
            "is missing",
        ),
        (set_at("encoder", "dim", to=17), "manifest.json", "dim 17, the encoder has 16"),
        (set_at("scorers", to=["retrieval"]), "manifest.json", "scorers ('retrieval',)"),
        (set_at("default_scorer", to="best"), "manifest.json", "default_scorer 'best', expected"),
    ],
)  # fmt: skip
def test_a_lie_with_a_fitting_digest_is_refused(lie, change, file, words):
    message = refusal(lie(change))
    assert message.startswith("bundle 'tiny': ")
    assert file in message
    assert words in message
    assert "train again with 'longtail train'" in message


def test_another_number_of_labels_is_refused_before_they_are_read(lie, monkeypatch):
    monkeypatch.setattr("longtail.models.bundle.bundle.LabelCatalogue.from_jsonl", None)
    assert "has 7 labels, manifest says 8" in refusal(lie(set_at("label_count", to=8)))


@pytest.mark.parametrize(
    "change",
    [
        set_at("label_count", to="7"),
        set_at("training_document_count", to=-1),
        set_at("held_out_documents", to=20),  # all that there are
        drop("held_out_documents"),
        set_at("thresholds", to={"sparse": 0.5}),  # which is not calibrated
        set_at("encoder", "document_pooling", to="max"),
        drop("data_fingerprint"),
        set_at("files", "sparse.json", "sha256", to=5),
        set_at(*VECTORS, to=[]),
        drop(*VECTORS, "dtype"),
        set_at("surprise", to=1),
    ],
)
def test_a_field_of_the_wrong_form_is_refused(lie, change):
    message = refusal(lie(change))
    assert "manifest.json" in message and "train again" in message


LINE = {"knots": [0.0, 1.5], "slopes": [1.0, 0.5, 2.0], "intercept": -1.0}
RARITY = {"counts": [0, 3], "shifts": [-0.5, 0.25], "factors": [0.75, 1.5]}
BLEND = {
    "counts": [0, 3], "intercepts": [-1.0, 0.5],
    "weights": {"retrieval": [0.75, 0.25], "sparse": [0.0, 0.75]},
    "floors": {"retrieval": -9.0, "sparse": -4.5}, "below": {"sparse": [0.0, 0.5]},
    "curve_bends": [-2.0], "curve_levels": [-1.5, -2.5], "curve_slopes": [[0.5, 0.75], [1.0, 1.25]],
}  # fmt: skip


def weights(**own: Any) -> dict[str, Any]:
    """A blend of scorers with these weights."""
    return {"weights": own, "floors": dict.fromkeys(own, -4.5), "below": {}}


def blending(**changes: Any) -> Callable[[dict[str, Any]], None]:
    """Change the manifest to one with calibrations and a blend, but for these values."""

    def change(content: dict[str, Any]) -> None:
        line = LINE | {key: value for key, value in changes.items() if key in LINE}
        line |= changes.get("rarity", {})
        content["calibrations"] = {"retrieval": LINE, changes.get("name", "sparse"): line}
        blend = BLEND | {key: value for key, value in changes.items() if key in BLEND}
        content["blends"] = {changes.get("blend", "ensemble"): blend}
        content["scorers"] = [*content["scorers"], *changes.get("scorers", ["ensemble"])]

    return change


def test_calibrations_and_weights_come_back_as_they_were_written(lie):
    parts = read_parts(open_bundle(lie(blending())))
    assert parts.scorers[-1] == "ensemble"
    assert parts.blends == {
        "ensemble": RarityBlend(
            counts=(0, 3),
            intercepts=(-1.0, 0.5),
            weights={"retrieval": (0.75, 0.25), "sparse": (0.0, 0.75)},
            floors={"retrieval": -9.0, "sparse": -4.5},
            below={"sparse": (0.0, 0.5)},
            curve_bends=(-2.0,),
            curve_levels=(-1.5, -2.5),
            curve_slopes=((0.5, 0.75), (1.0, 1.25)),
        )
    }
    found = parts.calibrations["sparse"]
    assert found == Calibration(knots=(0.0, 1.5), slopes=(1.0, 0.5, 2.0), intercept=-1.0)


def test_lines_by_rarity_come_back_as_they_were_written(lie):
    parts = read_parts(open_bundle(lie(blending(rarity=RARITY))))
    found, others = parts.calibrations["sparse"], parts.calibrations["retrieval"]
    assert (found.counts, found.shifts, found.factors) == ((0, 3), (-0.5, 0.25), (0.75, 1.5))
    assert (others.counts, others.shifts, others.factors) == ((0,), (0.0,), (1.0,))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"knots": [1.5, 0.0]}, "do not rise"),
        ({"knots": [], "slopes": [1.0]}, "has 0 knots"),
        ({"knots": 1.0}, "wrong form"),
        ({"slopes": [1.0, 0.0, 2.0]}, "expected 3 above 0"),
        ({"intercept": float("nan")}, "NaN is not a number of JSON"),
        ({"counts": [1, 3]}, "expected whole numbers from 0 on"),
        ({"counts": [0, 3.0]}, "wrong form"),
        ({"counts": [0, 3, 10]}, "expected as many numbers as the 3 knots"),
        ({"intercepts": [0.0, 1e308]}, "expected at most"),
        ({"intercept": 10**400}, "wrong form"),
        ({"knots": [float(x) for x in range(2000)]}, "has 2000 knots"),
        (weights(retrieval=[0.5, -0.5]), "expected some, at least 0 each"),
        (weights(retrieval=[0.5]), "expected as many numbers as the 2 knots"),
        (weights(classifier=[1.0, 1.0]), "'classifier', which is not calibrated"),
        ({"below": {"sparse": [0.0, -0.5]}}, "expected some, at least 0 each"),
        ({"below": {"classifier": [0.0, 0.5]}}, "a floor for each of its weights"),
        ({"curve_bends": [-2.0, 0.0]}, "expected 3 rows above 0"),
        ({"curve_slopes": [[0.5, 0.0], [1.0, 1.0]]}, "expected 2 rows above 0"),
        ({"curve_levels": [0.0]}, "expected as many numbers as the 2 knots"),
        ({"floors": {"retrieval": -9.0}}, "a floor for each of its weights"),
        ({"blend": "sparse", "scorers": []}, "blends ['sparse'], expected 'ensemble' and 'fast'"),
        ({"scorers": []}, "expected a scorer"),
        ({"rarity": {**RARITY, "counts": [1, 3]}}, "expected whole numbers from 0 on"),
        ({"rarity": {**RARITY, "counts": [0, 0]}}, "do not rise"),
        (
            {"rarity": {**RARITY, "factors": [1.0, 0.0]}},
            "expected 2 shifts, and as many factors above 0",
        ),
        ({"rarity": {**RARITY, "factors": [1.0]}}, "expected 2 shifts"),
        ({"rarity": {**RARITY, "shifts": []}}, "expected 2 shifts"),
    ],
)
def test_numbers_that_are_no_calibration_or_blend_are_refused(lie, changes, words):
    assert words in refusal(lie(blending(**changes)))


VALUES = {"digest": "ab", "feedback_sha256": "cd", "corpus": "ef"}
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
        ("surplus", 1),
    ],
)  # fmt: skip
def test_values_of_other_types_are_refused(name, value):
    assert from_json(to_json(LEARNED)) == LEARNED
    with pytest.raises(ValueError, match=r"expected|missing|unknown"):
        from_json(json.dumps(asdict(LEARNED) | {name: value}))
