"""Linear scorers on any negatives and loss of pairs: what is refused, trains and corrects."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from scipy.sparse import csr_array

from longtail.models.encoders.dual_encoder import encode_all
from longtail.models.kinds.storage import read_parts
from longtail.models.scorers.linear import LinearModel, LinearScorer
from longtail.training.configuration.sections import LinearConfig
from longtail.training.label_tree.fit import fit_tree
from longtail.training.learning.document_distributions import PartlyUniform
from longtail.training.linear.objective import ProjectedTree, make_pair_objective
from longtail.training.linear.stage import standardise, train_linear_scorer, unstandardised
from longtail.training.neural import document_vectors
from longtail.training.neural.document_vectors import encode_texts
from research.experiments.adversarial.corrections import TreeCorrection, corrected_scores
from tests.closeness import assert_all_close

TREE = {"kind": "tree", "regulariser": 0.1}
SOFTMAX = {"kind": "softmax"}
DISTRIBUTIONS: dict[str, dict[str, Any]] = {
    "uniform": {"distribution": {"kind": "uniform"}, "num_negatives": 4},
    "uniform_shared": {"distribution": {"kind": "uniform"}, "num_negatives": 4, "shared": True},
    "uniform_subset": {"distribution": {"kind": "uniform_subset"}, "num_negatives": 4},
    "frequency": {"distribution": {"kind": "frequency"}, "num_negatives": 4},
    "within_batch": {"distribution": {"kind": "within_batch"}},
    "all": {"distribution": {"kind": "all"}},
    "tree": {"distribution": TREE, "num_negatives": 4},
}


def parts(
    name: str = "uniform", weighting: str | None = "importance", **others: Any
) -> dict[str, Any]:
    negatives = {**DISTRIBUTIONS[name], "weighting": weighting, **others}
    return {"negatives": negatives, "loss": SOFTMAX, "epochs": 8, "batch_size": 16}


@pytest.fixture(scope="module")
def problem():
    """Documents near the centre of their first label; some carry a second one."""
    rng = np.random.default_rng(0)
    first = rng.integers(8, size=120)
    centres = rng.standard_normal((8, 6), dtype=np.float32)
    vectors = centres[first] + 0.1 * rng.standard_normal((120, 6), dtype=np.float32)
    truth = np.zeros((120, 8), dtype=np.float32)
    truth[np.arange(120), first] = 1
    truth[first < 3, 3] = 1
    return vectors, csr_array(truth)


def trained(problem, folder: Path, content: dict[str, Any]) -> LinearScorer:
    vectors, truth = problem
    config = LinearConfig.model_validate(content)
    return train_linear_scorer(vectors.copy(), truth, config, seed=0, device="cpu", folder=folder)


def accuracy(problem, scorer: LinearScorer) -> float:
    vectors, truth = problem
    best = (vectors @ scorer.model.weight.T + scorer.model.bias).argmax(axis=1)
    return float(truth.toarray()[np.arange(len(best)), best].mean())


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_every_q_trains(problem, tmp_path, name):
    scorer = trained(problem, tmp_path, parts(name))
    assert accuracy(problem, scorer) > 0.95
    assert (scorer.correction, scorer.tree) == ("none", None)


def test_the_draws_of_a_tree_are_partly_uniform_where_labels_are_excluded(problem):
    vectors, truth = problem
    tree = fit_tree(vectors, truth, num_components=3, regulariser=0.1).tree
    for exclude, expected in (("none", type(tree)), ("document", PartlyUniform)):
        config = LinearConfig.model_validate(parts("tree", exclude=exclude)).learning
        objective = make_pair_objective(config, vectors, truth, tree=tree)
        assert isinstance(objective.distribution, ProjectedTree)
        assert isinstance(objective.distribution.tree, expected)


def test_constant_weights_leave_the_tree_to_the_correction(problem, tmp_path):
    scorer = trained(problem, tmp_path, parts("tree", "constant", exclude="none"))
    assert scorer.correction == "tree"
    assert scorer.tree is not None
    features = scorer.tree.project(torch.from_numpy(problem[0]))
    scores = problem[0] @ scorer.model.weight.T + scorer.model.bias
    corrected = scores + scorer.tree.log_probs(features).numpy()
    right = problem[1].toarray()[np.arange(120), corrected.argmax(axis=1)]
    assert right.mean() > 0.95


@pytest.mark.parametrize(
    ("name", "w", "exclude", "loss", "correction"),
    [
        ("tree", "constant", "none", SOFTMAX, "tree"),
        ("tree", "constant", "none", {"kind": "decoupled"}, "tree"),
        ("tree", "constant", "none", {"kind": "decoupled", "part": "hinge"}, "none"),
        ("tree", "constant", "document", SOFTMAX, "none"),
        ("tree", "importance", "none", SOFTMAX, "none"),
        ("frequency", "constant", "none", SOFTMAX, "prior"),
        ("within_batch", "constant", "none", SOFTMAX, "prior"),
        ("uniform", "constant", "none", SOFTMAX, "none"),
    ],
)
def test_scores_lack_log_q_where_weights_are_constant(name, w, exclude, loss, correction):
    content = parts(name, w, exclude=exclude) | {"loss": loss}
    assert LinearConfig.model_validate(content).correction == correction


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"loss": {"kind": "ordered"}}, "loss 'ordered' weighs by rank"),
        ({**parts(), "loss": {"kind": "depl"}}, "loss 'depl' is taken over the batch's label"),
        (parts(weighting=None), "loss 'softmax' needs weighting"),
        (parts(distribution={"kind": "hard"}), "distribution 'hard' is not for linear scorers"),
        ({**parts(), "loss": {"kind": "decoupled", "part": "cosine_contrastive"}}, "wants cosines"),
        ({"learning_rate": float("inf")}, "finite"),
        ({"rate": 1}, "Extra inputs"),
    ],
)
def test_what_can_not_be_is_refused(content, words):
    with pytest.raises(ValidationError, match=words):
        LinearConfig.model_validate(content)


def test_few_labels_are_all_scored_by_default_and_other_settings_stay():
    default = LinearConfig(epochs=3)
    assert default.fitted_to(257) == default
    fitted = default.fitted_to(256)
    assert (fitted.negatives.distribution.kind, fitted.correction, fitted.epochs) == (
        "all", "none", 3,
    )  # fmt: skip
    assert default.fitted_to(1000, most_carried=0.99) == fitted
    assert default.fitted_to(1).negatives.exclude == "none"
    given = LinearConfig.model_validate(parts())
    assert given.fitted_to(2) == given
    assert LinearConfig.model_validate(default.model_dump()) == default


DIM, NUM_LABELS = 6, 5


def made_up() -> tuple[np.ndarray, csr_array]:
    """Documents near the centre of their label, far from the origin; label 3 has none."""
    rng = np.random.default_rng(0)
    labels = rng.choice([0, 1, 2, 4], 300)
    centres = 3 * rng.standard_normal((NUM_LABELS, DIM))
    vectors = 20 + 5 * (centres[labels] + rng.standard_normal((300, DIM)))
    truth = csr_array((np.ones(300, np.float32), labels, np.arange(301)), shape=(300, NUM_LABELS))
    return vectors.astype(np.float32), truth


def config(**changes: object) -> LinearConfig:
    tree = {"kind": "tree", "regulariser": 1.0}
    negatives = {
        "distribution": tree, "weighting": "constant", "num_negatives": 4, "exclude": "none"
    }  # fmt: skip
    loss = {"kind": "decoupled"}
    content = {"negatives": negatives, "loss": loss, "epochs": 3, "batch_size": 20}
    return LinearConfig.model_validate(content | changes)


def test_standardised_vectors_are_centred_with_a_mean_square_length_of_one():
    vectors, _ = made_up()
    before = vectors.copy()
    mean, scale = standardise(vectors)
    np.testing.assert_allclose(vectors.mean(axis=0), 0, atol=1e-5)
    assert (vectors**2).sum(axis=1).mean() == pytest.approx(1, rel=1e-5)
    assert_all_close(mean + scale * vectors, before, rtol=1e-4)


def test_a_model_of_standardised_vectors_is_turned_into_one_of_vectors_as_they_are():
    vectors, _ = made_up()
    before = vectors.copy()
    mean, scale = standardise(vectors)
    rng = np.random.default_rng(1)
    weight = rng.standard_normal((NUM_LABELS, DIM)).astype(np.float32)
    model = LinearModel(weight, weight[:, 0].copy(), np.arange(NUM_LABELS))
    turned = unstandardised(model, mean, scale)
    wanted = vectors @ model.weight.T + model.bias
    np.testing.assert_allclose(before @ turned.weight.T + turned.bias, wanted, atol=1e-4)


def test_corrected_scores_find_the_labels_of_made_up_documents(tmp_path):
    vectors, truth = made_up()
    before = torch.from_numpy(vectors.copy())
    scorer = train_linear_scorer(vectors, truth, config(), seed=0, device="cpu", folder=tmp_path)
    assert (scorer.correction, scorer.model.labels.tolist()) == ("tree", [0, 1, 2, 4])
    assert scorer.tree is not None and scorer.tree.num_labels == NUM_LABELS
    scores = corrected_scores(scorer.model, before, TreeCorrection(scorer.tree)).numpy()
    is_right = scorer.model.labels[scores.argmax(axis=1)] == truth.indices
    assert is_right.mean() > 0.95


def test_documents_are_encoded_part_by_part_and_once(trained, tiny_corpus, tmp_path, monkeypatch):
    from longtail.models.encoders.tokens import tokenize_texts
    from longtail.training.data.dataset import open_dataset

    dense = read_parts(trained.bundle).dense
    texts = list(open_dataset(tiny_corpus).split("dev").texts())
    tokens = tokenize_texts(dense.tokenizer, texts, dense.max_tokens)
    options = {"pad_id": 0, "device": "cpu", "folder": tmp_path / "vectors"}
    monkeypatch.setattr(document_vectors, "_PART_SIZE", 7)
    found = encode_texts(dense.encoder, tokens, "document", **options)
    np.testing.assert_allclose(
        found, encode_all(dense.encoder, tokens, "document", pad_id=0), rtol=1e-3, atol=1e-5
    )
    names = sorted(path.name for path in (tmp_path / "vectors").iterdir())
    assert names == [f"documents-{start:08d}.safetensors" for start in (0, 7, 14)]
    (tmp_path / "vectors" / names[1]).unlink()
    calls: list[int] = []

    def counted(encoder: object, part: object, *args: object, **kwargs: object) -> np.ndarray:
        calls.append(len(part))
        return encode_all(encoder, part, *args, **kwargs)

    monkeypatch.setattr(document_vectors, "encode_all", counted)
    np.testing.assert_array_equal(encode_texts(dense.encoder, tokens, "document", **options), found)
    assert calls == [7]
