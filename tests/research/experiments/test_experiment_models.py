"""The small models of the experiments: their scores, their steps, their order of pairs."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from torch import nn

from longtail.training.configuration.learning import LearningConfig
from longtail.training.learning.objectives import SamplerInputs, make_objective
from longtail.training.learning.sampling import label_counts
from research.experiments import bow_models as experiment_models
from research.experiments.bow_models import (
    BagModel,
    HiddenLayerModel,
    Learning,
    RowAdagrad,
    SphereModel,
    train_model,
)
from research.experiments.data import Part

F, L, N, WIDTH = 12, 6, 40, 8


@pytest.fixture(scope="module")
def part():
    """Documents whose labels are their features, so that they can be learned."""
    rng = np.random.default_rng(0)
    truth = (rng.random((N, L)) < 0.3).astype(np.float32)
    truth[np.arange(N), np.arange(N) % L] = 1
    features = np.concatenate([truth, (rng.random((N, F - L)) < 0.3)], axis=1).astype(np.float32)
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    return Part(csr_array(features), csr_array(truth))


def new_model(kind: type[BagModel] = HiddenLayerModel, *, num_features: int = F) -> BagModel:
    torch.manual_seed(0)
    model = kind(num_features, L, WIDTH)
    nn.init.normal_(model.labels.weight)
    return model


def learning(part: Part, reduction: str = "pairs", **changes) -> Learning:
    config = LearningConfig.model_validate(
        {
            "negatives": {
                "distribution": {"kind": "all"},
                "weighting": "importance",
                "exclude": "positive",
            },
            "loss": {"kind": "softmax"},
        }
    )
    objective = make_objective(config, SamplerInputs(label_counts(part.truth), "cpu"))
    return replace(Learning(objective, "positive", reduction, 8, 1, 0.1), **changes)


def scores_of(model: BagModel, part: Part) -> np.ndarray:
    with torch.no_grad():
        return (model.encode(part.features) @ model.label_vectors(torch.arange(L)).T).numpy()


def test_the_linear_model_is_two_matrix_products_and_a_bias(part):
    model = new_model()
    weight = model.labels.weight.detach().numpy()
    hidden = part.features.toarray() @ model.features.weight.detach().numpy()
    expected = hidden @ weight[:, :-1].T + weight[:, -1]
    np.testing.assert_allclose(scores_of(model, part), expected, rtol=1e-4, atol=1e-5)


def test_the_sphere_model_scores_by_cosines(part):
    model = new_model(SphereModel)
    hidden = np.maximum(part.features.toarray() @ model.features.weight.detach().numpy(), 0)
    vectors = hidden @ model.mix.weight.detach().numpy().T
    labels = model.labels.weight.detach().numpy()
    cosines = vectors @ labels.T / np.linalg.norm(vectors, axis=1)[:, None]
    cosines /= np.linalg.norm(labels, axis=1)
    np.testing.assert_allclose(scores_of(model, part), cosines, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("is_sparse", [True, False])
def test_row_adagrad_by_hand_and_rows_without_a_gradient_stay(is_sparse):
    table = nn.Embedding(4, 2, sparse=is_sparse)
    expected, sums = table.weight.detach().clone(), torch.zeros(4)
    optimizer = RowAdagrad(table, 0.5)
    for factor in (1.0, 3.0):
        (table(torch.tensor([2, 0, 2])) * torch.tensor([factor, 2.0])).sum().backward()
        optimizer.step()
        for row, times in ((0, 1), (2, 2)):
            gradient = times * torch.tensor([factor, 2.0])
            sums[row] += gradient.square().mean()
            expected[row] -= 0.5 * gradient / sums[row].sqrt()
        torch.testing.assert_close(table.weight.detach(), expected)
        assert table.weight.grad is None


@pytest.mark.parametrize("reduction", ["pairs", "documents"])
def test_every_pair_comes_once_an_epoch_and_each_epoch_has_its_order(part, reduction, monkeypatch):
    seen = record_batches(monkeypatch)
    train_model(new_model(), part, learning(part, reduction, epochs=2), seed=0)
    pairs = list(zip(*part.truth.nonzero(), strict=True))
    orders = [seen[: len(pairs)], seen[len(pairs) :]]
    assert all(Counter(order) == Counter(pairs) for order in orders)
    assert orders[0] != orders[1]
    if reduction == "documents":
        documents = [document for document, _ in orders[0]]
        assert sum(a != b for a, b in pairwise(documents)) == N - 1


def record_batches(monkeypatch) -> list[tuple[int, int]]:
    seen: list[tuple[int, int]] = []
    step = experiment_models._train_step

    def recording(model, part, learning, batch, rng):
        seen.extend(zip(*(array.tolist() for array in batch), strict=True))
        step(model, part, learning, batch, rng)

    monkeypatch.setattr(experiment_models, "_train_step", recording)
    return seen


@pytest.mark.parametrize("shared", [False, True])
def test_the_loss_of_a_batch_is_that_of_the_scores_of_its_pairs(part, shared, monkeypatch):
    model, seen = new_model(), []

    def objective(pairs, score, _generator):
        labels = torch.arange(L).unsqueeze(0) if shared else pairs.labels.unsqueeze(1)
        found = score(labels)
        expected = torch.from_numpy(scores_of(model, part))[pairs.documents]
        wanted = expected if shared else expected.gather(1, labels)
        torch.testing.assert_close(found.detach(), wanted)
        seen.append(len(found))
        return found.sum()

    train_model(model, part, learning(part, objective=objective, batch_size=16), seed=0)
    assert sum(seen) == part.truth.nnz
