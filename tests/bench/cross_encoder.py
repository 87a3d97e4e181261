"""A cross-encoder made of the packaged encoder, on hard negatives of the ensemble: is it worth it?

Groups of one right label and four wrong ones among the best 20 labels of a training document; the
loss is the cross-entropy of the right one. Then it reviews the best n labels of the dev documents,
fitted on one half and measured on the other, both ways.

    python -m tests.bench.cross_encoder REGISTRY DATA [--documents 2000] [--json FILE]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from longtail.models.bundle.registry import Registry
from longtail.models.encoders.pretrained import PACKAGED, find_encoder
from longtail.models.kinds.storage import read_parts
from longtail.models.options import RankingOptions
from longtail.models.predict.predictor import Predictor
from longtail.models.ranking.top_k import Ranking
from longtail.models.review.fitted import MODEL, REVIEWER
from longtail.training.assessment.truth import truth_of
from longtail.training.assessment.untrained import open_as_trained
from longtail.training.calibration.reviews import held_out_gain
from longtail.training.calibration.scored_pairs import ScoredPairs, spread_rows
from longtail.training.evaluation.by_frequency import measure
from longtail.training.evaluation.metrics import join_truth
from longtail.training.evaluation.record import deliver
from longtail.training.formats.options import RECOGNISED

NEGATIVES, POSITIVES, GROUPS = 4, 2, 8
CHARACTERS = 1000
"""Of a text; more than fit into the tokens that are read."""


def say(*words: object) -> None:
    print(*words, file=sys.stderr, flush=True)


class Reader:
    """Tokenizer and model."""

    def __init__(self, length: int) -> None:
        self.length = length
        folder = find_encoder(PACKAGED).folder
        torch.manual_seed(0)
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=1)

    def logits(self, texts: list[str], labels: list[str]) -> torch.Tensor:
        pairs = self.tokenizer(
            [text[:CHARACTERS] for text in texts], labels, truncation="longest_first",
            max_length=self.length, padding=True, return_tensors="pt",
        )  # fmt: skip
        found: torch.Tensor = self.model(**pairs).logits[:, 0]
        return found

    def train(self, groups: list[tuple[str, list[str]]], rate: float = 1e-4) -> None:
        self.model.train()
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=rate, weight_decay=0.01)
        num_steps = len(groups) // GROUPS
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=num_steps)
        order = np.random.default_rng(0).permutation(len(groups))
        losses = []
        for step in range(num_steps):
            chosen = [groups[i] for i in order[step * GROUPS : (step + 1) * GROUPS]]
            logits = self.logits(
                [text for text, labels in chosen for _ in labels],
                [label for _, labels in chosen for label in labels],
            ).view(GROUPS, -1)
            loss = -logits.log_softmax(dim=1)[:, 0].mean()
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
            if step % 50 == 49:
                say(step + 1, "of", num_steps, "loss", np.mean(losses[-50:]))
        self.model.train(mode=False)

    @torch.inference_mode()
    def scores(self, text: str, labels: list[str]) -> list[float]:
        found: list[float] = []
        for start in range(0, len(labels), 10):
            part = labels[start : start + 10]
            found += self.logits([text] * len(part), part).tolist()
        return found


def read(dataset: Any, split: str, predictor: Predictor, most: int) -> tuple[list[str], Any]:
    own = dataset.split(split)
    truth, _ = truth_of(predictor.catalogue, dataset, own.scan().labels)
    rows = spread_rows(truth.shape[0], most)
    wanted = set(rows.tolist())
    texts = [text for i, text in enumerate(own.texts()) if i in wanted]
    return texts, truth[rows]


def groups_of(
    texts: list[str], truth: Any, ranking: Ranking, names: list[str]
) -> list[tuple[str, list[str]]]:
    rng = np.random.default_rng(0)
    found = []
    for row, text in enumerate(texts):
        right = truth.indices[truth.indptr[row] : truth.indptr[row + 1]]
        wrong = np.setdiff1d(ranking.labels[row], right)
        if len(wrong) < NEGATIVES:
            continue
        for label in rng.permutation(right)[:POSITIVES].tolist():
            drawn = rng.choice(wrong, NEGATIVES, replace=False).tolist()
            found.append((text, [names[label], *(names[other] for other in drawn)]))
    return found


def figures(labels: np.ndarray, truth: Any, counts: np.ndarray, num_documents: int) -> dict:
    ranking = Ranking(labels, -np.arange(labels.size, dtype=np.float32).reshape(labels.shape))
    padded = np.pad(counts, (0, truth.shape[1] - len(counts)))
    found = measure(join_truth(ranking.labels, truth), padded, num_documents, (1, 5, 10))
    wanted = [("all", "P@1"), ("all", "P@5"), ("1-9", "macro-F1@5"), ("0", "R@10")]
    wanted += [(band, "R@10") for band in ("1", "2-9", "10-99", "100+")]
    return {f"{x} {y}": round(100 * found[x].values.get(y, float("nan")), 2) for x, y in wanted}


def main(
    registry: Path,
    data: Path,
    documents: int = 2000,
    dev_documents: int = 10**9,
    candidates: str = "10,20,50",
    length: int = 128,
    json_file: Annotated[Path | None, typer.Option("--json")] = None,
) -> None:
    bundle = Registry(registry).open("current")
    dataset = open_as_trained(data, RECOGNISED, [bundle], bundle.catalogue)
    predictor = Predictor(read_parts(bundle), default_scorer=bundle.manifest.default_scorer)
    names = [(x.pseudo_description or x.name)[:100] for x in predictor.catalogue]
    counts = predictor.catalogue.training_counts
    texts, truth = read(dataset, "train", predictor, documents)
    ranking = predictor.rank(predictor.read(texts), RankingOptions(k=20))
    groups = groups_of(texts, truth, ranking, names)
    reader = Reader(length)
    say(len(texts), "documents", len(groups), "groups")
    started = time.process_time()
    reader.train(groups)
    train_s = time.process_time() - started
    texts, truth = read(dataset, "dev", predictor, dev_documents)
    sizes = [int(n) for n in candidates.split(",")]
    most, num_documents = sizes[-1], bundle.manifest.training_document_count
    ranking = predictor.rank(predictor.read(texts), RankingOptions(k=most))
    started = time.process_time()
    reviewed = []
    for row, text in enumerate(texts):
        reviewed.append(reader.scores(text, [names[i] for i in ranking.labels[row]]))
        if row % 50 == 49:
            say(row + 1, "of", len(texts), "reviewed")
    pair_ms = 1000 * (time.process_time() - started) / (most * len(texts))
    width, rows = truth.shape[1], np.arange(len(texts))
    carried = np.repeat(rows, np.diff(truth.indptr)) * width + truth.indices
    is_true = np.isin(rows[:, None] * width + ranking.labels, carried)
    table: dict[str, Any] = {"before": figures(ranking.labels, truth, counts, num_documents)}
    for n in sizes:
        own = {MODEL: ranking.scores[:, :n], REVIEWER: np.array(reviewed, dtype=np.float32)[:, :n]}
        ones = np.ones((len(texts), n), dtype=np.float32)
        pairs = ScoredPairs(ranking.labels[:, :n], is_true[:, :n], is_true[:, :n], ones, own)
        gain = held_out_gain(pairs, counts)
        order = np.argsort(-gain.log_odds, axis=1, kind="stable")
        after = np.concatenate(
            [np.take_along_axis(pairs.labels, order, 1), ranking.labels[:, n:]], axis=1
        )
        table[f"n = {n}"] = figures(after, truth, counts, num_documents) | {
            "nats": gain.nats,
            "standard_error": gain.standard_error,
            "ms": n * pair_ms,
        }
    told = {"train_s": train_s, "pair_ms": pair_ms, **table}
    print(deliver(json_file, told, str(told), seeds=[0]))


if __name__ == "__main__":
    typer.run(main)
