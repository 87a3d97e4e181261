"""A candidate beside the current version: the same, worse, broken, with fewer labels, slower."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array
from typer.testing import CliRunner

import longtail
from longtail.ext.promotion.feedback import JudgedDocument, new_feedback, shares_in_order, time_of
from longtail.ext.promotion.judge import HeldOut, judge, promote
from longtail.ext.promotion.paired import PromotionRules, Version, holm, objections, quality_tests
from longtail.models.bundle.bundle import LABELS_NAME, Bundle, write_bundle
from longtail.models.bundle.registry import Registry
from longtail.models.errors import ConfigError, DataError, PromotionRefusedError
from longtail.models.labels.catalogue import LabelCatalogue
from longtail.models.metrics import (
    RankedEvaluation,
    document_values_at,
    inverse_propensities,
    join_truth,
    ndcg_at,
    precision_at,
    propensity_scored_precision_at,
)
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
        entry(), entry("2020-01-01T00:00:00"), entry(accepted=[], added=["c", "unknown"]),
        entry(text=None, document_id="d"), entry(rejected=["unknown"]),
        {"id": "gone", "deleted_at": "2030-01-01T00:00:00+00:00"},
    ]  # fmt: skip
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


RULES = PromotionRules(
    must_be_better=False, min_documents=10, margin=0.1, max_slowdown=1e6, max_size_ratio=2.0
)


@pytest.fixture
def two_trained(tmp_path, trained_sparse):
    """Two versions with the same weights; the first is current."""
    copy = Registry(tmp_path / "registry")
    source = trained_sparse.registry.open()
    for name in ("one", "two"):
        manifest = replace(source.manifest, data_fingerprint=name)

        def write(folder, manifest=manifest):
            files = [file for file in manifest.files if file != LABELS_NAME]
            tensors = {x: source.tensors(x) for x in files if x.endswith(".safetensors")}
            return write_bundle(
                folder,
                manifest=manifest,
                catalogue=source.catalogue,
                tensors=tensors,
                texts={file: source.text(file) for file in files if file not in tensors},
                encoder_folder=None,
            )

        copy.publish(write, activate=name == "one")
    return copy


@pytest.fixture
def dev_texts(tiny_corpus):
    return HeldOut(open_dataset(tiny_corpus), "dev")


def test_what_passes_becomes_current_and_can_be_rolled_back(two_trained, dev_texts):
    assert promote(two_trained, 2, dev_texts, RULES).has_passed and two_trained.current() == 2
    with pytest.raises(ConfigError, match="--candidate 2: is the current version already"):
        promote(two_trained, 2, dev_texts, RULES)
    assert two_trained.rollback() == 1


def test_what_is_refused_leaves_everything_as_it_was(two_trained, dev_texts):
    verdict = promote(two_trained, 2, dev_texts, replace(RULES, must_be_better=True))
    assert verdict.reasons and two_trained.current() == 1


def test_the_command_promotes_what_is_as_good_where_asked_and_else_fails(
    two_trained, tiny_corpus, monkeypatch
):
    monkeypatch.setattr(
        "longtail.ext.promotion.paired.PromotionRules",
        lambda must_be_better: replace(RULES, must_be_better=must_be_better),
    )
    words = [
        "promote", "--candidate", "2", "--data", tiny_corpus, "--registry",
        two_trained.folder,
    ]  # fmt: skip
    refused = CliRunner().invoke(longtail.app, [*map(str, words)])
    assert isinstance(refused.exception, PromotionRefusedError) and two_trained.current() == 1
    done = CliRunner().invoke(longtail.app, [*map(str, words), "--not-worse"])
    assert done.exit_code == 0 and "Version 2 is promoted" in done.output
    assert two_trained.current() == 2


NUM_PAIRS = 200
NUM_LABELS = 60
COUNTS = np.array([0] * 6 + [1] * 6 + [5] * 16 + [40] * 16 + [200] * 16)
PAIRED_RULES = PromotionRules()
AS_GOOD = PromotionRules(must_be_better=False)


def ranked(scores: np.ndarray) -> np.ndarray:
    return np.argsort(-scores, axis=1)[:, :5].astype(np.int64)


def pair_of_models(
    seed: int, num_documents: int, noise: tuple[float, float]
) -> dict[str, RankedEvaluation]:
    """Two models that see the truth through independent noise; the same noise: equal models."""
    rng = np.random.default_rng(seed)
    truth = (rng.random((num_documents, NUM_LABELS)) < 0.06).astype(np.float32)
    truth[np.arange(num_documents), rng.integers(0, NUM_LABELS, num_documents)] = 1
    matrix = csr_array(truth)
    return {
        who: join_truth(ranked(truth + level * rng.standard_normal(truth.shape)), matrix)
        for who, level in zip(("current", "candidate"), noise, strict=True)
    }


def share_promoted(num_documents: int, noise: tuple[float, float], rules: PromotionRules) -> float:
    promoted = 0
    for seed in range(NUM_PAIRS):
        joined = pair_of_models(seed, num_documents, noise)
        promoted += not objections(quality_tests(joined, COUNTS, 1000, rules), rules)
    return promoted / NUM_PAIRS


def test_the_means_of_the_values_are_the_metrics():
    joined = pair_of_models(3, 50, (0.4, 0.4))["current"]
    weights = inverse_propensities(COUNTS, 1000)
    values = document_values_at(joined, 5, weights)
    expected = {
        "P@5": precision_at(joined, 5),
        "nDCG@5": ndcg_at(joined, 5),
        "PSP@5": propensity_scored_precision_at(joined, 5, weights),
    }
    assert {name: each.mean() for name, each in values.items()} == pytest.approx(expected)


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


@pytest.mark.slow
def test_equal_models_are_promoted_in_less_than_one_in_twenty():
    assert share_promoted(300, (0.4, 0.4), PAIRED_RULES) < 0.05


@pytest.mark.slow
def test_models_that_are_worse_by_the_margin_are_promoted_in_less_than_one_in_twenty():
    """The margin is what the noise costs: the mean difference of P@5 over many documents."""
    joined = pair_of_models(999, 40_000, (0.4, 0.41))
    (test, *_) = quality_tests(joined, COUNTS, 1000, PAIRED_RULES)
    assert 0.003 < -test.difference < 0.02
    rules = PromotionRules(must_be_better=False, margin=-test.difference)
    assert share_promoted(300, (0.4, 0.41), rules) < 0.05


@pytest.mark.slow
def test_a_better_model_is_promoted_and_a_worse_one_refused():
    assert share_promoted(300, (0.5, 0.35), PAIRED_RULES) > 0.95
    assert share_promoted(300, (0.35, 0.5), AS_GOOD) == 0


def test_rare_labels_that_are_lost_are_a_reason_though_all_labels_gain():
    joined = pair_of_models(5, 600, (0.5, 0.3))
    labels = joined["candidate"].labels.copy()
    is_hit = joined["candidate"].is_hit.copy()
    is_rare = COUNTS[labels] == 1
    is_hit[is_rare] = False
    spoilt = RankedEvaluation(
        labels, is_hit, joined["candidate"].true_rows, joined["candidate"].true_labels, NUM_LABELS
    )
    tests = quality_tests(joined | {"candidate": spoilt}, COUNTS, 1000, PAIRED_RULES)
    (reason,) = objections(tests, PAIRED_RULES)
    assert reason.startswith("nDCG@5 of labels with 1 training documents is worse: 0.00 instead")
