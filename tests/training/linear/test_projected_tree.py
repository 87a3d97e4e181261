"""Draws for documents that were projected beforehand, against those of the tree itself."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from scipy.stats import chisquare

from longtail.training.label_tree.fit import fit_tree
from longtail.training.learning.document_distributions import TreeNegatives
from longtail.training.learning.sampling import Pairs
from longtail.training.linear.objective import ProjectedTree
from research.experiments.adversarial.signal_to_noise import TableSampler, random_table

L = 7
NOISE = random_table(5, L, seed=0)


@pytest.mark.parametrize("is_excluded", [False, True])
def test_a_projected_tree_draws_as_the_tree_does(is_excluded):
    many = torch.full((20_000,), 3)
    forbidden = many.unsqueeze(1)[:, : int(is_excluded)] - 1
    given = Pairs(many, many - 1, forbidden, many.unsqueeze(1).float())
    projected = ProjectedTree(TableSampler(NOISE), torch.arange(5).unsqueeze(1).float(), 1)
    for q in (projected, TreeNegatives(TableSampler(NOISE), 1)):
        drawn = q.draw(replace(given, vectors=None) if q is projected else given, torch.Generator())
        rest = NOISE[3].clone()
        rest[2] *= not is_excluded
        rest /= rest.sum()
        counts = torch.bincount(drawn.labels.flatten(), minlength=L)
        assert chisquare(counts[rest > 0], 20_000 * rest[rest > 0]).pvalue > 1e-3
        assert torch.allclose(drawn.log_q.double(), rest[drawn.labels].log(), atol=1e-5)
        assert torch.allclose(drawn.log_q_positive.double(), NOISE[3, 2].log())
        assert drawn.is_drawn.all()


def test_a_projected_label_tree_draws_as_the_tree_and_knows_log_p_n():
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((200, 6)).astype(np.float32)
    truth = csr_array(np.eye(11, dtype=np.float32)[rng.integers(0, 11, 200)])
    tree = fit_tree(vectors, truth, num_components=3, regulariser=0.1).tree
    features = tree.project(torch.from_numpy(vectors))
    given = Pairs(
        torch.arange(200), torch.arange(200) % 11, torch.empty((200, 0), dtype=torch.int64)
    )
    drawn = ProjectedTree(tree, features, 5).draw(given, torch.Generator().manual_seed(1))
    assert torch.equal(drawn.labels, tree.sample(features, 5, torch.Generator().manual_seed(1)))
    torch.testing.assert_close(drawn.log_q, tree.log_prob(features, drawn.labels))
    torch.testing.assert_close(
        drawn.log_q_positive, tree.log_prob(features, given.labels.unsqueeze(1))
    )
    assert drawn.is_drawn.all()
