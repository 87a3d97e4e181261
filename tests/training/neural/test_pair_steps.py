"""The dual encoder's step over pairs: its loss by brute force, what it encodes, that it trains."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from longtail.models.encoders.dual_encoder import DualEncoder, encode_all
from longtail.models.encoders.pretrained import load_transformer
from longtail.models.encoders.tokens import TokenizedTexts
from longtail.training.configuration.sections import RetrievalConfig
from longtail.training.learning.objectives import make_objective
from longtail.training.learning.sampling import step_generator
from longtail.training.neural.loop import Stages
from longtail.training.neural.model import DeplModel, TrainingTexts
from longtail.training.neural.steps import (
    PairBatches,
    Step,
    encoder_inputs,
    pair_step,
    start_scores,
)
from longtail.training.runtime.distributed import Machine

CPU = Machine("cpu", is_bfloat16=False)
ROWS = np.arange(8)
DISTRIBUTIONS: dict[str, dict[str, Any]] = {
    "uniform": {"distribution": {"kind": "uniform"}, "num_negatives": 5},
    "uniform_shared": {"distribution": {"kind": "uniform"}, "num_negatives": 40, "shared": True},
    "uniform_subset": {
        "distribution": {"kind": "uniform_subset"}, "num_negatives": 40, "shared": True,
    },
    "frequency": {
        "distribution": {"kind": "frequency", "exponent": 0.5}, "num_negatives": 40, "shared": True,
    },
    "within_batch": {"distribution": {"kind": "within_batch"}},
    "all": {"distribution": {"kind": "all"}},
    "hard": {"distribution": {"kind": "hard"}, "num_negatives": 5},
    "softmax": {"distribution": {"kind": "softmax"}, "num_negatives": 5},
    "tree": {"distribution": {"kind": "tree", "regulariser": 1.0}, "num_negatives": 5},
}  # fmt: skip
MINING = {
    "negatives": {"distribution": {"kind": "uniform_subset"}, "num_negatives": 40, "shared": True},
    "loss": {"kind": "ordered", "form": "pairwise", "rank_weights": 3},
}


def config_of(name: str, w: str = "importance", **others: Any) -> RetrievalConfig:
    content = {
        "epochs": 4, "batch_size": 16, "encoder_learning_rate": 1e-2, "pooler_learning_rate": 1e-1,
        "label_subset_size": 1000, "negatives": {**DISTRIBUTIONS[name], "weighting": w},
        "loss": {"kind": "softmax"},
    }  # fmt: skip
    return RetrievalConfig.model_validate(content | others)


@pytest.fixture
def new_model(tiny_encoder, texts):
    def make() -> DeplModel:
        priors = np.full(texts.truth.shape[1], 0.05, dtype=np.float32)
        model = DeplModel(DualEncoder(load_transformer(tiny_encoder)), priors)
        with torch.random.fork_rng():
            torch.manual_seed(4)
            torch.nn.init.normal_(model.classifier.weight, std=0.3)
        start_scores(model.encoder, texts)
        return model

    return make


@pytest.fixture
def hard(texts):
    return np.random.default_rng(0).integers(0, texts.truth.shape[1], (60, 3))


def batches_of(texts: TrainingTexts, config: RetrievalConfig) -> PairBatches:
    assert config.negatives is not None
    most = config.negatives.most_pairs(config.label_subset_size)
    return PairBatches(texts.truth, config.negatives.exclude, most)


def objective_of(model, texts, hard, config, folder: Path):
    material = encoder_inputs(model, texts, hard, config, CPU, seed=1, folder=folder)
    return make_objective(config.learning, material)


def step_of(model, texts, hard, config, folder, *, keep_classifier: bool = False) -> Step:
    objective = objective_of(model, texts, hard, config, folder)
    batches = batches_of(texts, config)
    return pair_step(model, texts, batches, objective, CPU, keep_classifier=keep_classifier)


@torch.no_grad()
def mean_loss(model: DeplModel, step: Step) -> float:
    """Return the loss without dropout of three batches, each with the same draws every time."""
    model.eval()
    rows = np.split(np.arange(60), 3)
    return sum(step(part, np.random.default_rng(0)).item() for part in rows) / 3


def brute_force(model, texts, hard, config, folder, seed: int) -> torch.Tensor:
    """Return the objective on the scores of every document and label of the corpus."""
    documents, labels = (
        torch.from_numpy(encode_all(model.encoder, tokens, role, pad_id=0))
        for tokens, role in ((texts.documents, "document"), (texts.labels, "label"))
    )
    scores = model.encoder.scores(documents, labels)
    rng = np.random.default_rng(seed)
    pairs, places = batches_of(texts, config).draw(ROWS, rng, "cpu")
    np.testing.assert_array_equal(pairs.documents, ROWS[places])
    pairs = replace(pairs, vectors=documents[pairs.documents])
    objective = objective_of(model, texts, hard, config, folder)
    of_pairs = scores[pairs.documents]
    return objective(
        pairs,
        lambda wanted: of_pairs.gather(1, wanted.expand(len(of_pairs), -1)),
        step_generator(rng, "cpu"),
    )


@pytest.mark.parametrize("size", [1000, 60])
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_the_loss_is_the_objective_on_the_full_score_matrix(
    new_model, texts, hard, tmp_path, name, size
):
    if name == "all" and size == 60:
        pytest.skip("all labels are more than these")
    model = new_model().eval()
    config = config_of(name, label_subset_size=size)
    found = step_of(model, texts, hard, config, tmp_path)(ROWS, np.random.default_rng(3))
    expected = brute_force(model, texts, hard, config, tmp_path, 3)
    assert expected.item() > 0
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_mining_has_the_loss_of_the_full_score_matrix(new_model, texts, hard, tmp_path):
    model, config = new_model().eval(), config_of("uniform", **MINING)
    found = step_of(model, texts, hard, config, tmp_path)(ROWS, np.random.default_rng(3))
    expected = brute_force(model, texts, hard, config, tmp_path, 3)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_every_q_trains_both_poolers(new_model, texts, hard, tmp_path, name):
    model, config = new_model(), config_of(name)
    step = step_of(model, texts, hard, config, tmp_path / "negatives")
    step(ROWS, np.random.default_rng(0)).backward()
    for pooler in (model.encoder.document_pooler, model.encoder.label_pooler):
        assert pooler.weight.grad.abs().sum() > 0
    assert model.classifier.weight.grad is None
    before = mean_loss(model, step)
    Stages(texts, 1, CPU, tmp_path / "steps").train("retrieval", model, step, config)
    assert mean_loss(model, step) < 0.97 * before


@pytest.mark.parametrize("name", [name for name in DISTRIBUTIONS if name != "all"])
def test_no_step_encodes_more_labels_than_it_may(
    new_model, texts, hard, tmp_path, monkeypatch, name
):
    encoded, batch = [], TokenizedTexts.batch

    def counted(self, rows, *others):
        if self is texts.labels:
            assert len(set(rows.tolist())) == len(rows)
            encoded.append(len(rows))
        return batch(self, rows, *others)

    config = config_of(name, label_subset_size=50)
    step = step_of(new_model(), texts, hard, config, tmp_path)
    monkeypatch.setattr(TokenizedTexts, "batch", counted)
    for seed in range(5):
        step(ROWS, np.random.default_rng(seed))
    assert len(encoded) == 5
    assert max(encoded) <= 50


def test_documents_without_labels_cost_nothing(new_model, texts, hard, tmp_path):
    bare = replace(texts, truth=csr_array(texts.truth.shape, dtype=np.float32))
    step = step_of(new_model(), texts, hard, config_of("uniform"), tmp_path)
    objective = objective_of(new_model(), texts, hard, config_of("uniform"), tmp_path)
    model = new_model()
    batches = PairBatches(bare.truth, "document", most=4)
    step = pair_step(model, bare, batches, objective, CPU, keep_classifier=False)
    loss = step(ROWS, np.random.default_rng(0))
    loss.backward()
    assert loss.item() == 0
    assert not model.encoder.document_pooler.weight.grad.any()


def test_negatives_are_drawn_in_float32_though_scores_are_not(new_model, texts, hard, tmp_path):
    model, config = new_model(), config_of("tree")
    objective = objective_of(model, texts, hard, config, tmp_path)
    machine = Machine("cpu", is_bfloat16=True)
    step = pair_step(
        model, texts, batches_of(texts, config), objective, machine, keep_classifier=False
    )
    with machine.autocast():
        loss = step(ROWS, np.random.default_rng(3))
    loss.backward()
    assert torch.isfinite(loss)
    assert loss.dtype == torch.float32
