"""What rare labels cost the precision of a blend: aims, the tail dial, and more weight for names.

    python tests/bench/tail_trade.py REGISTRY CORPUS [--split dev]

Each row ranks the split by `ensemble`: as it is, for each aim, with tail dials, and with a weight
added to that of `names` for labels of every frequency, which is how one would mix it in by hand.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from machine import begin
from recording import Table, add_json_option, keep

from longtail.models.bundle.manifest import RarityBlend
from longtail.models.bundle.registry import Registry
from longtail.models.kinds.storage import read_parts
from longtail.models.names import ENSEMBLE, NAMES
from longtail.models.options import PROPENSITY, RankingOptions
from longtail.models.predict.predictor import Predictor
from longtail.models.ranking.top_k import Ranking
from longtail.training.assessment.assess import split_batches
from longtail.training.data.dataset import open_dataset
from longtail.training.evaluation.by_frequency import ALL_LABELS, TAIL_BIN, evaluate

COLUMNS = {
    "P@1": (ALL_LABELS, "P@1"),
    "P@5": (ALL_LABELS, "P@5"),
    "PSP@5": (ALL_LABELS, "PSP@5"),
    f"macro-F1@5 ({TAIL_BIN})": (TAIL_BIN, "macro-F1@5"),
    "R@10 (0)": ("0", "R@10"),
}
DIALS = (0.05, 0.1, 0.2, 0.4, 0.8)
ADDED = (0.1, 0.2, 0.4, 0.8)
"""To the weight of `names`."""


def with_names(predictor: Predictor, blends: Mapping[str, RarityBlend], added: float) -> Predictor:
    """Return the model with a weight added to that of `names` in its blend."""
    blend = blends[ENSEMBLE]
    names = tuple(weight + added for weight in blend.weights[NAMES])
    mixed = replace(blend, weights={**blend.weights, NAMES: names})
    return predictor.with_blending(predictor.parts.calibrations, {**blends, ENSEMBLE: mixed})


def rows_of(
    predictor: Predictor, blends: Mapping[str, RarityBlend]
) -> Iterator[tuple[str, Predictor, RankingOptions]]:
    """Give the rows: a name, and what ranks how.

    Yields:
        The next row.
    """
    own = RankingOptions(k=10, scorer=ENSEMBLE)
    yield ENSEMBLE, predictor, own
    yield f"aim {PROPENSITY}", predictor, replace(own, aim=PROPENSITY)
    for dial in DIALS:
        yield f"tail dial {dial}", predictor, replace(own, tail_dial=dial)
    for added in ADDED:
        yield f"names + {added}", with_names(predictor, blends, added), own


def main() -> None:
    """Measure and print a row for each way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("registry", type=Path)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--split", default="dev")
    add_json_option(parser)
    chosen = begin(parser)
    bundle = Registry(chosen.registry).open()
    parts = read_parts(bundle)
    predictor = Predictor(parts, device="cpu")
    dataset = open_dataset(chosen.corpus, known=bundle.catalogue)
    truth = dataset.split(chosen.split).scan().labels
    found: dict[str, list[Ranking]] = {}
    for batch in split_batches(predictor, dataset, chosen.split, truth.shape[0]):
        for name, ranker, options in rows_of(predictor, parts.blends):
            found.setdefault(name, []).append(ranker.rank(batch, options))
    rankings = {name: Ranking.joined(each) for name, each in found.items()}
    counts = predictor.catalogue.training_counts
    evaluated = evaluate(rankings, truth, counts, bundle.manifest.training_document_count)
    table = Table({"ranked by": "", **dict.fromkeys(COLUMNS, ".2f")})
    for name, subsets in evaluated.scorers.items():
        table.add(name, *(100 * subsets[x].values[metric] for x, metric in COLUMNS.values()))
    keep(chosen.json, {"trade": table})


if __name__ == "__main__":
    main()
