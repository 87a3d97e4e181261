"""Reviews by a reviewer that misbehaves, and what a perfect and a random one are worth.

Two parts. `traffic`: `longtail serve` is asked for 1,000 reviews, 16 at a time, while its reviewer
answers rightly or has one of 23 faults, in turn. Counted are answers by outcome, lost requests
(another status, or no labels), and late ones: later than the limit of the request, 5 s, by more
than a tenth of a second, which client and machine need. The limit of a review is 1 s.

`quality`: half of the documents of a split are fitted on, the others are measured: P@1 and P@5
before and after, and those of the best possible order of the candidates. A random reviewer is drawn
many times; where its gain can't be told from chance, `longtail review` publishes nothing, so that
the labels stay as they are.

    python -m tests.bench.review REGISTRY DATA [--requests 1000] [--documents 1200] [--draws 20]
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path
from typing import Annotated, Any

import httpx
import numpy as np
import typer

from longtail.ext.review.reviewed import Reviewed, find_review
from longtail.ext.review.weights import fit_review, held_out_gain
from longtail.models.bundle.registry import Registry
from longtail.models.corpus.columns import RECOGNISED
from longtail.models.edit.rewriting import publish_texts
from longtail.models.fitted.review import MODEL, REVIEW, REVIEWER
from longtail.training.assessment.untrained import open_as_trained
from longtail.training.calibration.scored_pairs import ScoredPairs
from longtail.training.data.dataset import Dataset
from longtail.training.evaluation.record import deliver, markdown_table
from tests.bench.reviewers import FAULTS, RIGHT, standing_in
from tests.bench.served_process import served

REVIEW_S, REQUEST_S, LATE_S = 1.0, 5.0, 5.1
PARALLEL = 16
NAME = "rerank"


class SameForAll:
    """Gives every candidate the same score."""

    name = NAME
    reads_keywords = False

    async def scores(self, text: str, candidates: Sequence[str]) -> list[float]:
        return [0.0] * len(candidates)

    async def close(self) -> None:
        pass


def with_scores(pairs: ScoredPairs, reviewed: np.ndarray) -> ScoredPairs:
    """Return pairs with the scores of another reviewer."""
    return replace(pairs, scores={**pairs.scores, REVIEWER: reviewed.astype(np.float32)})


def measure(found: Reviewed, counts: np.ndarray, name: str, reviewed: np.ndarray) -> dict[str, Any]:
    """Return figures of a reviewer, fitted on every second document, measured on the others."""
    pairs = with_scores(found.pairs, reviewed)
    rows = np.arange(len(pairs.labels))
    fitted_on, rest = (pairs.of_documents(rows[i::2]) for i in (0, 1))
    review = fit_review(fitted_on, counts)
    is_published = held_out_gain(fitted_on, counts).is_significant
    given = (rest.scores[MODEL], rest.scores[REVIEWER], counts[rest.labels])
    log_odds = review.log_odds(*given)
    after = np.take_along_axis(rest.is_true, np.argsort(-log_odds, axis=1, kind="stable"), axis=1)
    best = -np.sort(-rest.is_true.astype(int), axis=1)
    figures: dict[str, Any] = {"reviewer": name, "published": is_published}
    for k in (1, 5):
        kinds = {"before": rest.is_true, "after": after, "best": best}
        figures |= {f"P@{k} {x}": 100 * float(y[:, :k].mean()) for x, y in kinds.items()}
    return figures


def quality(found: Reviewed, counts: np.ndarray, num_draws: int) -> list[dict[str, Any]]:
    """Return the figures of a perfect reviewer, and of random ones: their mean, and the worst."""
    shape = found.pairs.labels.shape
    rows = [measure(found, counts, "perfect", found.pairs.is_true)]
    drawn = [
        measure(found, counts, "random", np.random.default_rng(seed).normal(size=shape))
        for seed in range(num_draws)
    ]
    served_as = [x if x["published"] else x | {"P@5 after": x["P@5 before"]} for x in drawn]
    numbers = [name for name in drawn[0] if name.startswith("P@")]
    mean: dict[str, Any] = {name: float(np.mean([x[name] for x in drawn])) for name in numbers}
    rows.append({"reviewer": f"random, mean of {num_draws}, if it were published"} | mean)
    rows[-1]["published"] = float(np.mean([x["published"] for x in drawn]))
    lost = max(x["P@5 before"] - x["P@5 after"] for x in served_as)
    rows.append({"reviewer": "random, largest loss of P@5 as published", "P@5 lost": lost})
    return rows


def traffic(registry: Path, texts: Sequence[str], num_requests: int) -> dict[str, Any]:
    """Return how requests for reviews ended, and how long they took."""
    faults = cycle([RIGHT, *FAULTS])
    with standing_in(lambda _, name: float(len(name)), faults) as server:
        options = {
            "reviewer": NAME, "review-address": server.url, "review-timeout-s": REVIEW_S,
            "review-attempts": 2, "review-concurrency": 64, "max-reviews-per-day": 10**6,
            "log-level": "error",
        }  # fmt: skip
        given = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        with served(registry, *given) as process, ThreadPoolExecutor(PARALLEL) as pool:
            url = f"http://127.0.0.1:{process.port}/v1/predict"
            with httpx.Client(timeout=60) as http:

                def ask(text: str, *, review: bool) -> tuple[str, float]:
                    started = time.perf_counter()
                    body = {"text": text, "review": review, "timeout_s": REQUEST_S}
                    response = http.post(url, json=body)
                    seconds = time.perf_counter() - started
                    if response.status_code != httpx.codes.OK:
                        return f"lost: {response.status_code}", seconds
                    (result,) = response.json()["results"]
                    is_whole = len(result["labels"]) == 5
                    return result.get("review_failed", "reviewed") if is_whole else "lost", seconds

                plain = [*pool.map(lambda x: ask(x, review=False), islice(cycle(texts), 200))]
                asked = islice(cycle(texts), num_requests)
                answers = [*pool.map(lambda x: ask(x, review=True), asked)]
    slowest_plain = max(seconds for _, seconds in plain)
    late = [seconds for _, seconds in answers if seconds > LATE_S]
    seconds = np.array([seconds for _, seconds in answers])
    return {
        "requests": num_requests,
        "outcomes": dict(Counter(outcome for outcome, _ in answers).most_common()),
        "late": len(late),
        "limit_s": REQUEST_S,
        "slowest_plain_s": slowest_plain,
        "median_s": float(np.median(seconds)),
        "slowest_s": float(seconds.max()),
        "attempts": len(server.bodies),
    }


def pairs_of(registry: Registry, dataset: Dataset, split: str, num_documents: int) -> Reviewed:
    """Return the candidates of documents."""
    return find_review(
        registry.open("current"), dataset, split, SameForAll(),
        num_documents=num_documents, num_candidates=20,
    )  # fmt: skip


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2f}"
    return "" if value is None else str(value)


def main(
    registry: Path,
    data: Path,
    split: str = "dev",
    requests: int = 1000,
    documents: int = 1200,
    draws: int = 20,
    json_file: Annotated[Path | None, typer.Option("--json")] = None,
) -> None:
    """Measure both parts."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copytree(registry, Path(folder) / "registry", symlinks=True))
        store = Registry(copy)
        bundle = store.open("current")
        dataset = open_as_trained(data, RECOGNISED, [bundle], bundle.catalogue)
        found = pairs_of(store, dataset, split, documents)
        measured = quality(found, bundle.catalogue.training_counts, draws)
        changed = {REVIEW.file: REVIEW.to_json(found.review)}
        publish_texts(store, bundle, changed, activate=True, action="review")
        texts = [*islice(dataset.split(split).texts(), 100)]
        ended = traffic(copy, texts, requests)
    columns = [*dict.fromkeys(name for row in measured for name in row)]
    shown = [[_shown(row.get(name)) for name in columns] for row in measured]
    text = markdown_table(columns, shown)
    text += "\n\n" + markdown_table(["", ""], [[x, str(y)] for x, y in ended.items()])
    print(deliver(json_file, {"quality": measured, "traffic": ended}, text, seeds=range(draws)))


if __name__ == "__main__":
    typer.run(main)
