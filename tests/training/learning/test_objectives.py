"""Objectives put together from a configuration, against the full losses that they stand for."""

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from longtail.training.configuration.learning import LearningConfig
from longtail.training.learning.objectives import SamplerInputs, make_objective
from longtail.training.learning.sampling import Pairs

L, DIM, BATCH = 30, 4, 6
COUNTS = np.arange(1, L + 1)
DISTRIBUTIONS = [
    {"kind": "uniform"}, {"kind": "uniform_subset"}, {"kind": "frequency", "exponent": 0.5},
    {"kind": "within_batch"}, {"kind": "all"}, {"kind": "hard"}, {"kind": "softmax"},
    {"kind": "tree"},
]  # fmt: skip
DRAWN = [q for q in DISTRIBUTIONS if q["kind"] not in {"within_batch", "all"}]
WEIGHTS = ["constant", "importance", "relative", "tail", "equalised", "adaptive"]


class LinearScorer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.register_buffer("documents", torch.randn(BATCH, DIM, generator=generator))
        self.vectors = nn.Embedding(L, DIM, _weight=torch.randn(L, DIM, generator=generator))

    def forward(self, labels: Tensor) -> Tensor:
        return torch.einsum(
            "bd,bkd->bk", self.documents, self.vectors(labels).expand(BATCH, -1, -1)
        )


class UniformTree:
    def project(self, vectors):
        return vectors

    def sample(self, features, num, generator):
        shape, device = (len(features), num), features.device
        return torch.randint(L, shape, generator=generator, device=device)

    def log_prob(self, features, labels):
        return torch.full(labels.shape, -float(np.log(L)), device=labels.device)


def pairs_of(scorer: LinearScorer) -> Pairs:
    labels = torch.tensor([3, 7, 7, 0, 29, 12])
    documents, labels = (x.to(scorer.documents.device) for x in (torch.arange(BATCH), labels))
    return Pairs(documents, labels, labels.unsqueeze(1), scorer.documents)


def material_of(scorer: LinearScorer) -> SamplerInputs:
    weight = scorer.vectors.weight
    hard = torch.randint(8, 20, (BATCH, 5), generator=torch.Generator().manual_seed(1))
    return SamplerInputs(
        counts=COUNTS,
        device=str(weight.device),
        hard=hard.to(weight.device),
        score_all=lambda pairs: scorer.documents @ weight.T,
        tree=UniformTree(),
    )


def objective_of(scorer: LinearScorer, negatives: dict, loss: dict):
    config = LearningConfig.model_validate({"negatives": negatives, "loss": loss})
    return make_objective(config, material_of(scorer))


def value(scorer: LinearScorer, negatives: dict, loss: dict, seed: int = 0) -> Tensor:
    objective = objective_of(scorer, negatives, loss)
    generator = torch.Generator(scorer.documents.device).manual_seed(seed)
    return objective(pairs_of(scorer), scorer, generator)


@pytest.mark.parametrize(
    ("q", "w", "is_shared"),
    [
        (q, w, is_shared)
        for q, w, is_shared in itertools.product(DISTRIBUTIONS, WEIGHTS, (False, True))
        if not is_shared or q["kind"] in {"uniform", "uniform_subset", "frequency"}
    ],
    ids=str,
)
def test_every_q_composes_with_every_w(q, w, is_shared):
    scorer = LinearScorer()
    m = None if q["kind"] in {"within_batch", "all"} else 4
    loss = value(
        scorer,
        {"distribution": q, "weighting": w, "num_negatives": m, "shared": is_shared},
        {"kind": "softmax"},
    )
    loss.backward()
    assert loss.isfinite()
    assert scorer.vectors.weight.grad.isfinite().all()
    assert scorer.vectors.weight.grad.any()


@pytest.mark.parametrize("q", DRAWN, ids=str)
def test_importance_weights_estimate_the_full_loss(q):
    scorer = LinearScorer()
    loss = {"kind": "decoupled", "part": "squared_hinge"}
    objective = objective_of(
        scorer, {"distribution": q, "weighting": "importance", "num_negatives": 25}, loss
    )
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        full = float(
            value(scorer, {"distribution": {"kind": "all"}, "weighting": "importance"}, loss)
        )
        draws = [float(objective(pairs_of(scorer), scorer, generator)) for _ in range(100)]
    error = np.std(draws) / np.sqrt(len(draws))
    assert np.mean(draws) == pytest.approx(full, abs=4 * error + 1e-4)


@pytest.mark.gpu
@pytest.mark.parametrize("q", DISTRIBUTIONS, ids=str)
def test_every_q_draws_on_a_gpu(q):
    scorer = LinearScorer().cuda()
    m = None if q["kind"] in {"within_batch", "all"} else 4
    assert value(
        scorer, {"distribution": q, "weighting": "tail", "num_negatives": m}, {"kind": "softmax"}
    ).isfinite()


def test_the_full_softmax_is_the_cross_entropy():
    scorer = LinearScorer()
    loss = value(
        scorer, {"distribution": {"kind": "all"}, "weighting": "importance"}, {"kind": "softmax"}
    )
    scores = scorer.documents @ scorer.vectors.weight.T
    expected = nn.functional.cross_entropy(scores, pairs_of(scorer).labels)
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize(
    "phi", ["hinge", "logistic_base_2", "squared_hinge", "exponential", "ramp"]
)
@pytest.mark.parametrize("form", ["pairwise", "binary"])
def test_mining_all_labels_takes_the_hardest(phi, form):
    scorer = LinearScorer()
    loss = {"kind": "ordered", "margin_loss": phi, "form": form}
    with torch.no_grad():
        found = value(scorer, {"distribution": {"kind": "all"}}, loss)
        objective = objective_of(scorer, {"distribution": {"kind": "all"}}, loss)
        scores = scorer.documents @ scorer.vectors.weight.T
        labels = pairs_of(scorer).labels.unsqueeze(1)
        hardest = scores.scatter(1, labels, -torch.inf).amax(dim=1)
        positive = scores.gather(1, labels).squeeze(1)
        cost = objective.loss.ordered.margin_loss
        if form == "pairwise":
            expected = cost(positive - hardest).mean()
        else:
            expected = (cost(positive) + cost(-hardest)).mean()
    torch.testing.assert_close(found, expected)


def test_mining_weighs_by_the_labels_there_are():
    scorer = LinearScorer()
    objective = objective_of(
        scorer,
        {"distribution": {"kind": "uniform_subset"}, "num_negatives": 10},
        {"kind": "ordered"},
    )
    assert objective.loss.rank_weights == pytest.approx((2.9,))
    assert objective(pairs_of(scorer), scorer, torch.Generator().manual_seed(0)) > 0
