"""A candidate beside the current version: the same, worse, broken, with fewer labels, slower."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from longtail.ext.promotion.feedback import JudgedDocument, new_feedback, shares_in_order, time_of
from longtail.ext.promotion.judge import HeldOut, judge
from longtail.ext.promotion.paired import PromotionRules, Version
from longtail.models.bundle.bundle import LABELS_NAME, Bundle, write_bundle
from longtail.models.bundle.registry import Registry
from longtail.models.errors import DataError
from longtail.models.labels.catalogue import LabelCatalogue
from longtail.training.data.dataset import open_dataset

LENIENT = PromotionRules(
    must_be_better=False, min_documents=10, margin=0.1, max_slowdown=1e6, max_size_ratio=2.0
)


@pytest.fixture
def registry(tmp_path, trained_sparse):
    """The trained version, as number 1."""
    copy = Registry(tmp_path / "registry")
    republish(trained_sparse.registry.open(), copy)
    return copy


@pytest.fixture
def held_out(tiny_corpus, tmp_path):
    """Documents like those of training, with other texts."""
    folder = tmp_path / "new"
    folder.mkdir()
    for name in ("labels.jsonl", "dev.jsonl"):
        shutil.copy(tiny_corpus / name, folder)
    lines = map(json.loads, (tiny_corpus / "train.jsonl").read_text().splitlines())
    new = (json.dumps(x | {"text": f"{x['text']} again"}) + "\n" for x in lines)
    (folder / "train.jsonl").write_text("".join(new))
    return HeldOut(open_dataset(folder), "train")


def republish(
    source: Bundle,
    registry: Registry,
    spoil: Callable[[dict[str, np.ndarray]], None] = dict,
    catalogue: LabelCatalogue | None = None,
) -> int:
    """Publish a bundle with other weights of its sparse model, or another catalogue."""
    names = [name for name in source.manifest.files if name != LABELS_NAME]
    tensors = {name: source.tensors(name) for name in names if name.endswith(".safetensors")}
    spoil(tensors["sparse.safetensors"])
    manifest = replace(source.manifest, data_fingerprint=f"{len(registry.versions())}")

    def write(folder: Path):
        return write_bundle(
            folder,
            manifest=manifest,
            catalogue=catalogue or source.catalogue,
            tensors=tensors,
            texts={name: source.text(name) for name in names if name not in tensors},
            encoder_folder=None,
        )

    return registry.publish(write, activate=not registry.versions())


def reverse_weights(weights: dict[str, np.ndarray]) -> None:
    weights["data"][:] = -weights["data"]


def no_numbers(weights: dict[str, np.ndarray]) -> None:
    weights["data"][:] = np.nan


def test_a_copy_is_as_good_and_not_better(registry, held_out):
    copy = republish(registry.open(1), registry)
    verdict = judge(registry, copy, 1, held_out, LENIENT)
    assert verdict.has_passed, verdict.reasons
    assert {test.difference for test in verdict.tests} == {0.0}
    assert verdict.tests[0].num_documents == 60
    refused = judge(registry, copy, 1, held_out, replace(LENIENT, must_be_better=True))
    assert len(refused.reasons) == 1 and "no metric is shown to be better" in refused.reasons[0]
    assert refused.to_markdown().splitlines()[2].split()[1:4] == ["P@5", "|", "60"]


def test_worse_weights_are_refused_by_every_metric(registry, held_out):
    worse = republish(registry.open(1), registry, reverse_weights)
    verdict = judge(registry, worse, 1, held_out, LENIENT)
    said = " ".join(verdict.reasons)
    for metric in ("P@5", "nDCG@5", "PSP@5"):
        assert f"{metric} is not shown to be worse by less than 10 points" in said
    assert "is worse: " in said  # a band of rare labels


def test_weights_that_are_no_numbers_are_refused(registry, held_out):
    broken = republish(registry.open(1), registry, no_numbers)
    verdict = judge(registry, broken, 1, held_out, LENIENT)
    assert any("finite" in each or "can't answer" in each for each in verdict.reasons)


def test_a_damaged_file_is_refused(registry, held_out):
    broken = republish(registry.open(1), registry)
    path = registry.folder_of(broken) / "sparse.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    (reason,) = judge(registry, broken, 1, held_out, LENIENT).reasons
    assert "can't be loaded" in reason and "sparse.safetensors" in reason


def test_lost_labels_are_named(registry, held_out):
    source = registry.open(1)
    renamed = LabelCatalogue([replace(source.catalogue[0], id="new"), *list(source.catalogue)[1:]])
    other = republish(source, registry, catalogue=renamed)
    verdict = judge(registry, other, 1, held_out, LENIENT)
    lost = source.catalogue[0].id
    assert f"1 labels of the current version are gone, the first {lost!r}" in verdict.reasons


def test_documents_that_were_trained_on_judge_nothing(registry, held_out, tiny_corpus):
    copy = republish(registry.open(1), registry)
    with pytest.raises(DataError, match="split 'train': got 60 of 60 documents that"):
        judge(registry, copy, 1, HeldOut(open_dataset(tiny_corpus), "train"), LENIENT)
    on_dev = judge(registry, copy, 1, HeldOut(open_dataset(tiny_corpus), "dev"), LENIENT)
    assert (
        "20 of 20 documents are those that the version was chosen and calibrated on"
        in (on_dev.notes[-1])
    )
    path = held_out.dataset.folder / "train.jsonl"
    old = (tiny_corpus / "train.jsonl").read_text().splitlines()[:20]
    path.write_text(path.read_text() + "\n".join(old))
    verdict = judge(registry, copy, 1, HeldOut(open_dataset(path.parent), "train"), LENIENT)
    assert verdict.tests[0].num_documents == 60
    assert "20 of 80 documents were trained on and are left out" in verdict.notes[-1]


def entry(given_at: str = "2030-01-01T00:00:00+00:00", **fields: object) -> dict[str, object]:
    said = {"text": "fish", "accepted": ["a"], "rejected": ["b"], "added": []}
    return {"given_at": given_at, **said, **fields}


def test_only_usable_entries_after_the_candidate_count(tmp_path):
    path = tmp_path / "feedback.jsonl"
    rows = [
        entry(),
        entry("2020-01-01T00:00:00"),
        entry(accepted=[], added=["c", "unknown"]),
        entry(text=None, document_id="d"),
        entry(rejected=["unknown"]),
        {"id": "gone", "deleted_at": "2030-01-01T00:00:00+00:00"},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = new_feedback(path, time_of("2025-01-01T00:00:00+00:00"), frozenset("abc"))
    assert found.documents == (
        JudgedDocument("fish", ("a",), ("b",)),
        JudgedDocument("fish", ("c",), ("b",)),
    )
    assert (found.num_before, found.num_unusable) == (1, 3)


def test_pairs_in_order_by_brute_force(registry, held_out):
    version = Version.load(1, registry.open(1))
    texts = list(held_out.dataset.split("dev").texts())[:6]
    ids = [label.id for label in version.bundle.catalogue]
    documents = [
        JudgedDocument(text, tuple(ids[turn : turn + 3]), tuple(ids[turn + 5 : turn + 7 + turn]))
        for turn, text in enumerate(texts)
    ]
    expected = []
    for each in documents:
        scores = dict.fromkeys(ids, -np.inf) | {  # labels that it can't score
            label.id: label.score
            for label in version.predictor.predict([each.text], k=len(ids))[0].labels
        }
        pairs = [(scores[r], scores[w]) for r in each.right for w in each.wrong]
        expected.append(np.mean([(r > w) + 0.5 * (r == w) for r, w in pairs]))
    assert shares_in_order(version, documents) == pytest.approx(expected)


def test_feedback_that_a_candidate_contradicts_is_a_reason(registry, held_out, tmp_path):
    source = registry.open(1)
    worse = republish(source, registry, reverse_weights)
    version = Version.load(1, source)
    path = tmp_path / "feedback.jsonl"
    with path.open("w") as file:
        for text in held_out.dataset.split("train").texts():
            labels = version.predictor.predict([text], k=20)[0].labels
            row = entry(text=text, accepted=[labels[0].id], rejected=[labels[-1].id])
            file.write(json.dumps(row | {"given_at": "2999-01-01T00:00:00Z"}) + "\n")
    verdict = judge(registry, worse, 1, replace(held_out, feedback=path), LENIENT)
    assert any("judged pairs in order" in reason for reason in verdict.reasons)
    assert verdict.notes[0].startswith("feedback: 60 entries used, 0 left out")
    old = replace(held_out, feedback=path)
    path.write_text(json.dumps(entry("2001-01-01T00:00:00Z")) + "\n")
    few = judge(registry, worse, 1, old, LENIENT)
    assert few.notes[1] == "feedback: not tested; expected at least 10 entries"
