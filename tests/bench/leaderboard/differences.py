"""Which rows of the leaderboard differ from a reference by more than chance.

    python tests/bench/leaderboard/differences.py DATA/eurlex57k \
        --reference "Longtail: ensemble" --rankings \
        "Longtail: ensemble=WORK/leaderboard/longtail-ensemble.npz" \
        "omikuji, Parabel=WORK/rankings/omikuji-parabel/test-SETTING.npz"

Rows have the names that they have on the leaderboard, whose file the tests are written to.
P@1, P@5, nDCG@5 and PSP@5 are means over documents, whose paired differences are resampled 10,000
times; documents whose text an earlier one has are left out. All tests of a set are two-sided and
corrected for their number by Holm's method. One model each: another seed may tell otherwise.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from board import put_differences
from columns import KS, Judged, as_wide, document_values
from jaxtyping import Bool, Float64
from row import BOARD, name_of

from longtail.models.ranking.top_k import Ranking
from longtail.training.assessment.compare import read_predictions, repeated_texts
from longtail.training.data.dataset import open_dataset
from longtail.training.evaluation.record import make_record
from longtail.training.evaluation.significance import holm

METRICS = ("P@1", "P@5", "nDCG@5", "PSP@5")
_NUM_RESAMPLES = 10_000
_CHUNK = 500


def main() -> None:
    """Test all rankings against the reference, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--reference", required=True)
    parser.add_argument("--rankings", nargs="+", required=True, metavar="ROW=FILE")
    parser.add_argument("--json", type=Path, default=BOARD, help="the leaderboard's file")
    chosen = parser.parse_args()
    dataset = open_dataset(chosen.data)
    judged = Judged.of(dataset, "test")
    paths = dict(each.split("=", 1) for each in chosen.rankings)
    rankings = {
        name: as_wide(read_predictions(Path(path), *judged.truth.shape), max(KS))
        for name, path in paths.items()
    }
    is_repeat = repeated_texts(dataset.split("test").texts())
    words = ["--reference", chosen.reference, "--rankings", *(f"{name}=RANKING" for name in paths)]
    script = f"python tests/bench/leaderboard/differences.py {name_of(chosen.data)}"
    figures = {
        "left_out": int(is_repeat.sum()),
        "tests": differences(rankings, chosen.reference, judged, is_repeat),
    }
    record = make_record(figures, command=f"{script} {shlex.join(words)}", seeds=[0])
    put_differences(chosen.json, dataset.folder.name, record)


def differences(
    rankings: Mapping[str, Ranking],
    reference: str,
    judged: Judged,
    is_repeat: Bool[np.ndarray, document],
) -> list[list[Any]]:
    """Return the differences from a ranking, in points: row, metric, difference, interval, p.

    Args:
        rankings: Ranking of the documents of the truth, by the name of the row.
        reference: One of them.
        judged: The truth.
        is_repeat: The documents that are left out.
    """
    kept = ~is_repeat
    judged = replace(judged, truth=judged.truth[np.flatnonzero(kept)])
    values = {
        name: document_values(Ranking(each.labels[kept], each.scores[kept]), judged)
        for name, each in rankings.items()
    }
    others = [name for name in rankings if name != reference]
    apart = np.stack([
        100 * (values[name][metric] - values[reference][metric])
        for name in others
        for metric in METRICS
    ])  # fmt: skip
    lows, highs, p_values = resampled(apart)
    corrected = [x for x in holm(p_values) if x is not None]
    pairs = [(name, metric) for name in others for metric in METRICS]
    return [
        [name, metric, float(mean), low, high, p]
        for (name, metric), mean, low, high, p in zip(
            pairs, apart.mean(axis=1), lows, highs, corrected, strict=True
        )
    ]


def resampled(
    apart: Float64[np.ndarray, "test document"], seed: int = 0
) -> tuple[list[float], list[float], list[float]]:
    """Return 95 % intervals of the means over documents and two-sided p-values, by bootstrap.

    A p-value is twice the share of resamples on the other side of 0, ties and one added to both
    counts, so that it is never 0.

    Args:
        apart: Differences, each of one document.
        seed: The resampling's seed.
    """
    random, (_, num_documents) = np.random.default_rng(seed), apart.shape
    shares = np.full(num_documents, 1 / num_documents)
    means = np.concatenate([
        random.multinomial(num_documents, shares, size=_CHUNK) @ apart.T / num_documents
        for _ in range(_NUM_RESAMPLES // _CHUNK)
    ])  # fmt: skip
    lows, highs = np.percentile(means, (2.5, 97.5), axis=0)
    below, above = (means <= 0).sum(axis=0), (means >= 0).sum(axis=0)
    p_values = np.minimum(1, 2 * (np.minimum(below, above) + 1) / (len(means) + 1))
    return lows.tolist(), highs.tolist(), p_values.tolist()


if __name__ == "__main__":
    main()
