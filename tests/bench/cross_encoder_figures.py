# ruff: noqa: E501
"""P@k and recall by band of the reviewers whose scores cross_encoder.py wrote.

python tests/bench/cross_encoder_figures.py OUT.npz
"""

import sys

import numpy as np
from scipy.sparse import csr_array

from longtail.models.review.fitted import MODEL, REVIEWER
from longtail.training.calibration.reviews import held_out_gain
from longtail.training.calibration.scored_pairs import ScoredPairs
from longtail.training.evaluation.by_frequency import measure
from longtail.training.evaluation.metrics import join_truth


def figures(labels, truth, counts, num):
    padded = np.pad(counts, (0, truth.shape[1] - len(counts)))
    found = measure(join_truth(labels, truth), padded, num, (1, 5, 10))
    wanted = (
        [("all", "P@1"), ("all", "P@5"), ("1-9", "macro-F1@5"), ("0", "R@10")]
        + [(b, "R@10") for b in ("1", "2-9", "10-99", "100+")]
        + [(b, "R@5") for b in ("0", "1-9")]
    )
    return {f"{x} {y}": round(100 * found[x].values.get(y, float("nan")), 2) for x, y in wanted}


for path in sys.argv[1:]:
    z = np.load(path, allow_pickle=True)
    labels, scores, counts = z["labels"], z["scores"], z["counts"]
    ptr = z["truth_indptr"]
    truth = csr_array(
        (np.ones(len(z["truth_indices"]), np.float32), z["truth_indices"], ptr),
        shape=(len(labels), int(z["width"])),
    )
    num = int(z["num_docs"])
    is_true = join_truth(labels, truth).is_hit
    print("##", path, len(labels), "documents")
    print("before", figures(labels, truth, counts, num))
    print(
        "recall of 10/20/50:",
        [round(100 * is_true[:, :n].sum() / truth.nnz, 1) for n in (10, 20, 50)],
    )
    for name in ("cosine_name", "cosine", "cross", "oracle", "random"):
        if name not in z and name not in ("oracle", "random"):
            continue
        R = (
            is_true.astype(float)
            if name == "oracle"
            else np.random.default_rng(0).normal(size=labels.shape)
            if name == "random"
            else z[name]
        )
        R = np.where(labels >= 0, R, 0).astype(np.float32)
        for n in (10, 20, 50):
            L = labels[:, :n]
            there = L >= 0
            pairs = ScoredPairs(
                L,
                is_true[:, :n],
                there,
                there.astype(np.float32),
                {
                    MODEL: np.where(there, scores[:, :n], -np.inf).astype(np.float32),
                    REVIEWER: R[:, :n],
                },
            )
            g = held_out_gain(pairs, counts)
            order = np.argsort(-g.log_odds, axis=1, kind="stable")
            after = np.concatenate([np.take_along_axis(L, order, 1), labels[:, n:]], axis=1)
            t = np.take_along_axis(is_true[:, :n], order, 1)
            d5 = t[:, :5].mean(1) - is_true[:, :5].mean(1)
            d1 = t[:, 0] * 1.0 - is_true[:, 0]
            f = figures(after, truth, counts, num)
            print(
                f"{name:12s} n={n:2d} nats {g.nats:+.4f} se {g.standard_error:.4f} sig {g.is_significant} dP1 {100 * d1.mean():+.2f}±{100 * d1.std() / len(d1) ** 0.5:.2f} dP5 {100 * d5.mean():+.2f}±{100 * d5.std() / len(d5) ** 0.5:.2f}",
                f,
            )
