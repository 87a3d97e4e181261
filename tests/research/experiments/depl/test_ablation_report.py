"""What the ablations report of made-up rankings: tests, findings, sentences and pictures."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from longtail.models.encoders.dual_encoder import encode_all
from longtail.models.encoders.tokens import tokenize_texts
from longtail.models.kinds.storage import read_parts
from longtail.models.metrics import join_truth
from longtail.models.parts.dense_storage import read_dual_encoder
from longtail.models.parts.model_parts import RETRIEVAL_FILE
from longtail.models.ranking.top_k import Ranking, top_of_scores
from longtail.training.evaluation.by_frequency import TAIL_BIN, evaluate, label_subsets
from longtail.training.evaluation.significance import macro_t_test, micro_sign_test
from research.experiments.depl.ablations import configured
from research.experiments.depl.evidence import Arm, Difference, Evidence, judge
from research.experiments.trials import Estimate

NUM_LABELS, NUM_SEEDS = 60, 2
COUNTS = np.repeat([200, 20, 5, 1, 0], [5, 10, 20, 20, 5])
TRUTH = csr_array((np.random.default_rng(1).random((50, NUM_LABELS)) < 0.1).astype(np.float32))
NOISE = {
    ("retrieval", "base"): 0.9, ("retrieval", "name_only"): 3.0, ("retrieval", "tokens_8"): 0.9,
    ("retrieval", "hard_0"): 0.7, ("retrieval", "hard_10"): 0.9, ("classifier", "base"): 3.0,
    ("sparse", "base"): 0.6, ("hybrid", "base"): 0.9, ("hybrid", "name_only"): 1.5,
}  # fmt: skip
"""How far the scores of each arm are off; `tokens_8` and `hard_10` rank as the base does."""
DEPL, NAME = Arm("retrieval", "base"), Arm("retrieval", "name_only")


def rank(arm: Arm, seed: int) -> Ranking:
    noise = NOISE[arm.scorer, arm.setting]
    same = arm.setting in {"tokens_8", "hard_10"}
    stream = [seed, int(10 * noise), 0 if same else len(arm.scorer)]
    if (arm.scorer, arm.setting) == ("retrieval", "base"):
        stream[-1] = 0
    drawn = np.random.default_rng(stream).random(TRUTH.shape)
    return top_of_scores((TRUTH.toarray() + noise * drawn).astype(np.float32), 10)


def measured(arm: Arm) -> dict[str, Estimate]:
    by_seed = []
    for seed in range(NUM_SEEDS):
        subsets = evaluate({"x": rank(arm, seed)}, TRUTH, COUNTS, 500).scorers["x"]
        by_seed.append(dict(subsets["all"].values) | {
            f"{metric} ({name})": value
            for name, subset in subsets.items()
            if name != "all"
            for metric, value in subset.values.items()
        })  # fmt: skip
    return {name: Estimate(tuple(one[name] for one in by_seed)) for name in by_seed[0]}


@pytest.fixture(scope="module")
def evidence():
    found: dict[str, dict[str, dict[str, Estimate]]] = {}
    for scorer, setting in NOISE:
        found.setdefault(scorer, {})[setting] = measured(Arm(scorer, setting))
    names = ("base", "name_only", "tokens_8", "hard_0")  # hard_10 is the base once more
    return Evidence(found, rank, TRUTH, COUNTS, dict.fromkeys(names, Estimate((120.0, 60.0))))


def judged(arm: Arm, seed: int):
    return join_truth(rank(arm, seed).labels, TRUTH)


def test_p_values_are_the_largest_over_the_seeds(evidence):
    pairs = [(judged(DEPL, seed), judged(NAME, seed)) for seed in range(NUM_SEEDS)]
    is_tail = label_subsets(COUNTS)[TAIL_BIN]
    found = evidence.difference(DEPL, NAME, "macro-F1@5 (1-9)")
    wanted = [macro_t_test(*pair, 5, is_tail).p_value for pair in pairs]
    assert found.p_better == max(wanted) != min(wanted)
    found = evidence.difference(DEPL, NAME, "P@5")
    assert found.p_worse == max(micro_sign_test(b, a, 5).p_value for a, b in pairs)
    (alone,) = judge([found])
    assert alone.verdict == "better" and alone.p_value == 2 * found.p_better


def difference(ahead: int | float, p_better: float) -> Difference:
    return Difference(Estimate((float(ahead),)), p_better, 1 - p_better)


def test_what_is_looked_at_together_is_corrected_for_its_number():
    looked_at = [
        difference(1, 0.01), difference(-1, 0.999), difference(0, 0.5), difference(1, 0.02),
    ]  # fmt: skip
    judged = judge(looked_at)
    assert [each.p_value for each in judged] == pytest.approx([0.02, 0.002, None, 0.04])
    assert [each.corrected for each in judged] == pytest.approx([0.04, 0.006, None, 0.04])
    assert [each.verdict for each in judged] == ["better", "worse", "the same", "better"]
    judged = judge([*looked_at, difference(1, 0.3)])
    assert [each.verdict for each in judged] == [
        "no difference", "worse", "the same", "no difference", "no difference",
    ]  # fmt: skip


def test_what_a_paper_expects_is_tested_one_sided_and_its_contrary_two_sided():
    looked_at = [difference(1, 0.04), difference(-1, 0.96), difference(-1, 0.99)]
    assert [judge([each], is_expected=True)[0].verdict for each in looked_at] == [
        "better", "no difference", "worse",
    ]  # fmt: skip


def test_a_bundle_encodes_labels_as_its_training_did(tiny_corpus, tiny_config, train_in, tmp_path):
    config = configured(tiny_config, "cls_labels", 0)
    bundle = train_in(tmp_path, config, tiny_corpus).bundle
    encoder, dense = read_dual_encoder(bundle), read_parts(bundle).dense
    texts = [label.pseudo_description for label in bundle.catalogue]
    tokens = tokenize_texts(dense.tokenizer, texts, config.descriptions.max_tokens)
    pad_id = int(dense.tokenizer.pad_token_id)
    stored = bundle.tensors(RETRIEVAL_FILE)["label_vectors"]
    assert encode_all(encoder, tokens, "label", pad_id=pad_id) == pytest.approx(stored, abs=1e-5)
    assert encoder.head.label_pooling == "cls"
    encoder.head = replace(encoder.head, label_pooling="mean")
    other = encode_all(encoder, tokens, "label", pad_id=pad_id)
    assert np.abs(other - stored).max() > 1e-2
