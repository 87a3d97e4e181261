"""A real model in 1 to 16 shards against itself whole: labels, ties and scores, to the bit.

    python tests/bench/sharding.py REGISTRY [--texts 200] [--k 50] [--explained 3]

Prints a line for each scorer and tail dial: how many rankings were compared, how many neighbouring
labels had equal scores, and how many of those pairs lay in different shards. All labels are ranked,
and those that a filter leaves. Then some texts are explained. Ends with an error at the first
difference.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import begin
from recording import Table, add_json_option, keep

from longtail.models.bundle.registry import Registry
from longtail.models.bundle.shard import shard_ranges
from longtail.models.edit.split_shards import split_parts
from longtail.models.labels.filters import LabelFilter, LabelSet
from longtail.models.parts.storage import read_parts
from longtail.models.predict.predictor import Predictor
from longtail.models.predict.sharded import ShardedPredictor
from longtail.models.ranking.top_k import Ranking

DEMO = Path(__file__).parents[2] / "training" / "demo_data" / "tst.json.gz"
NUM_SHARDS = range(1, 17)


def read_texts(count: int) -> list[str]:
    """Return documents of the demo's test split."""
    with gzip.open(DEMO, "rt", encoding="utf-8") as file:
        documents = [json.loads(line) for line, _ in zip(file, range(count), strict=False)]
    return [f"{x['title']}\n{x['content']}" for x in documents]


def compared(whole: Predictor, sharded: Sequence[ShardedPredictor], *given: Any) -> Ranking:
    """Return the ranking of the whole model.

    Raises:
        SystemExit: Shards give another one.
    """
    wanted = whole.rank(*given)
    for shards in sharded:
        found = shards.rank(*given)
        if not np.array_equal(found.labels, wanted.labels):
            raise SystemExit(f"{given[2:]}: other labels")
        if found.scores.tobytes() != wanted.scores.tobytes():
            raise SystemExit(f"{given[2:]}: other scores")
    return wanted


def compare_explanations(
    whole: Predictor, sharded: Sequence[ShardedPredictor], texts: Sequence[str], scorer: str
) -> None:
    """Compare what whole and shards say of the labels that they find.

    Raises:
        SystemExit: Shards explain a label in another way.
    """
    wanted = whole.predict(texts, scorer=scorer, explain=True)
    for shards in sharded:
        if shards.predict(texts, scorer=scorer, explain=True) != wanted:
            raise SystemExit(f"{scorer}: another explanation")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("registry", type=Path)
    parser.add_argument("--texts", type=int, default=200)
    parser.add_argument("--k", type=int, default=50)
    parser.add_argument("--explained", type=int, default=3, help="texts")
    add_json_option(parser)
    options = begin(parser)
    torch.set_num_threads(1)
    parts = read_parts(Registry(options.registry).open())
    whole = Predictor(parts, device="cpu")
    sharded = [
        ShardedPredictor([Predictor(x, device="cpu") for x in split_parts(parts, count)])
        for count in NUM_SHARDS
    ]
    texts = read_texts(options.texts)
    batch = whole.read(texts)
    ids = tuple(label.id for label in parts.catalogue)
    filters = (
        None,
        LabelFilter(exclude=ids[::3]),
        LabelFilter(include=ids[::100], include_set=LabelSet("some", (*ids[7::50], "unknown"))),
    )
    table = Table({
        "scorer": "", "tail dial": "g", "rankings": ",", "equal neighbours": ",",
        "of which across 16 shards": ",",
    })  # fmt: skip
    shard_of = np.repeat(
        np.arange(NUM_SHARDS[-1]), [len(x) for x in shard_ranges(len(parts.catalogue), 16)]
    )
    for scorer in whole.scorers:
        for tail_dial in (0.0, 1.0):
            for label_filter in reversed(filters):
                given = (batch, options.k, scorer, None, tail_dial, label_filter)
                wanted = compared(whole, sharded, *given)
            is_tie = wanted.scores[:, 1:] == wanted.scores[:, :-1]
            across = shard_of[wanted.labels[:, 1:]] != shard_of[wanted.labels[:, :-1]]
            num_rankings = len(filters) * len(NUM_SHARDS) * len(wanted.labels)
            ties = int(is_tie.sum()), int((is_tie & across).sum())
            table.add(f"`{scorer}`", tail_dial, num_rankings, *ties)
        compare_explanations(whole, sharded, texts[: options.explained], scorer)
    keep(options.json, {"ties": table})


if __name__ == "__main__":
    main()
