"""A cross-encoder of our own: the packaged encoder, trained to review what a model ranks best."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForSequenceClassification

from longtail.ext.review.reviewed import best_candidates
from longtail.ext.review.reviewer import MAX_TEXT_CHARACTERS, candidate_text
from longtail.models.bundle.bundle import Bundle
from longtail.models.encoders.pretrained import find_encoder
from longtail.models.errors import ConfigError
from longtail.models.files.durable import staged_folder
from longtail.training.assessment.truth import truth_of
from longtail.training.calibration.scored_pairs import spread_rows
from longtail.training.configuration.run import TrainingConfig
from longtail.training.configuration.sections import RetrievalConfig
from longtail.training.data.dataset import Dataset
from longtail.training.losses import decoupled_softmax_loss
from longtail.training.neural.batching import BatchPlan
from longtail.training.neural.model import WEIGHT_DECAY, set_rates
from longtail.training.pipeline.encoder_check import EncoderTrial, check_encoder
from longtail.training.pipeline.encoder_start import load_encoder
from longtail.training.runtime.distributed import Machine, find_machine
from longtail.training.runtime.run_log import progress_bar

_MAX_TOKENS = 96  # of a pair, in service too
_RANKED, _LEAST_WRONG = 30, 3  # wrong labels are those among so many best ones
_MOST_RIGHT, _MOST_WRONG = 4, 9  # labels of a document in a step
_BATCH, _EPOCHS, _RATE, _HEAD_RATE, _SEED = 16, 2, 1e-4, 1e-3, 0
_NO_PAIR = -1e4  # a score below all others; finite, as it is multiplied by 0
_Example = tuple[str, Int64[np.ndarray, "_"], Int64[np.ndarray, "_"]]  # text, right, wrong


def train_cross_encoder(
    bundle: Bundle, dataset: Dataset, folder: Path, num_documents: int, scorer: str | None = None
) -> None:
    """Train on documents of the train split to score right labels above wrong ones near the top.

    Args:
        bundle: The model whose best labels are told apart.
        dataset: Its labels are matched by their ids.
        folder: Must not exist; it appears when everything is written.
        num_documents: The most to learn from, spread over the split.
        scorer: Ranks the labels; None: the default one.
    """
    examples = _examples(bundle, dataset, num_documents, scorer)
    machine = find_machine("auto")
    model, tokenizer = _untrained([text for text, _, _ in examples], machine)
    candidates = [candidate_text(label, with_keywords=True) for label in bundle.catalogue]
    _train(model, tokenizer, machine, examples, candidates)
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    tokenizer.model_max_length = _MAX_TOKENS
    with staged_folder(folder, "config.json") as incoming:
        model.save_pretrained(incoming)
        tokenizer.save_pretrained(incoming)


def _untrained(texts: list[str], machine: Machine) -> tuple[Any, Any]:
    tuned = RetrievalConfig(epochs=1)  # as the encoder is
    config = TrainingConfig(document_max_tokens=_MAX_TOKENS, retrieval=tuned)
    source = find_encoder(config.encoder)
    start = load_encoder(source, config)
    encoder = start.encoder.to(machine.device)
    check_encoder(EncoderTrial(source, encoder, start.tokenizer, machine, config), texts)
    settings = AutoConfig.from_pretrained(source.folder, local_files_only=True, num_labels=1)
    settings.reads_keywords = True
    with machine.forked_random(_SEED):
        model: Any = AutoModelForSequenceClassification.from_config(settings)  # type: ignore[no-untyped-call]
    model.base_model.load_state_dict(encoder.transformer.state_dict())
    model.base_model.embeddings.requires_grad_(False)
    # The pooler is the encoder's: one that starts as the identity was not measurably better.
    return model.to(machine.device).eval(), start.tokenizer  # without dropout


def _train(
    model: Any, tokenizer: Any, machine: Machine, examples: list[_Example], candidates: list[str]
) -> None:
    head = [*model.base_model.pooler.parameters(), *model.classifier.parameters()]
    groups = [([*model.base_model.encoder.parameters()], _RATE), (head, _HEAD_RATE)]
    optimizer = torch.optim.AdamW(
        [{"params": each, "lr": rate, "peak": rate} for each, rate in groups],
        weight_decay=WEIGHT_DECAY, fused=True,
    )  # fmt: skip
    texts = [text for text, _, _ in examples]
    cut = tokenizer(texts, truncation=True, max_length=_MAX_TOKENS)["input_ids"]
    lengths = np.array([len(ids) for ids in cut], dtype=np.int64)
    plan = BatchPlan(lengths, _EPOCHS, _BATCH, _BATCH * _MAX_TOKENS, [_SEED])
    with progress_bar(total=plan.num_documents, desc="cross-encoder", unit="doc") as bar:
        for step, rows in enumerate(plan.batches(0)):
            set_rates(optimizer, step, plan.num_steps)
            optimizer.zero_grad(set_to_none=True)
            rng = np.random.default_rng([_SEED, step])
            with machine.autocast():
                loss = _loss(model, tokenizer, [examples[row] for row in rows], candidates, rng)
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_([x for each, _ in groups for x in each], 1.0)
            optimizer.step()
            bar.update(len(rows))


def _examples(
    bundle: Bundle, dataset: Dataset, num_documents: int, scorer: str | None
) -> list[_Example]:
    scorer = bundle.manifest.default_scorer if scorer is None else scorer
    bundle.manifest.check_asked(scorer, 1)
    split, catalogue, found = dataset.split("train"), bundle.catalogue, []
    truth, _ = truth_of(catalogue, dataset, split.scan().labels)
    rows, k = spread_rows(truth.shape[0], num_documents), min(_RANKED, len(catalogue))
    texts, ranking = best_candidates(bundle, split, rows, k, scorer)
    for row, text, ranked in zip(rows, texts, ranking.labels, strict=True):
        right = truth[[row]].indices.astype(np.int64)
        wrong = np.setdiff1d(ranked[ranked >= 0], right)
        wrong, right = wrong[catalogue.training_counts[wrong] > 0], right[right < len(catalogue)]
        if text.strip() and len(right) and len(wrong) >= _LEAST_WRONG:
            found.append((text[:MAX_TEXT_CHARACTERS], right, wrong))
    if len(found) < _BATCH:
        raise ConfigError(
            f"--train-documents: of {len(texts)} documents {len(found)} have a right label and "
            f"{_LEAST_WRONG} wrong ones among the best {k}; expected at least {_BATCH}"
        )
    return found


def _loss(
    model: Any, tokenizer: Any, batch: list[_Example], names: list[str], rng: np.random.Generator
) -> Float[Tensor, ""]:
    right = [rng.permutation(each)[:_MOST_RIGHT] for _, each, _ in batch]
    both = [
        [*yes, *rng.permutation(no)[:_MOST_WRONG]]
        for yes, (_, _, no) in zip(right, batch, strict=True)
    ]
    pairs = tokenizer(
        [text for (text, _, _), labels in zip(batch, both, strict=True) for _ in labels],
        [names[label] for labels in both for label in labels],
        truncation="longest_first", padding=True, max_length=_MAX_TOKENS, return_tensors="pt",
    )  # fmt: skip
    logits = model(**pairs.to(model.device)).logits[:, 0].float()
    at = torch.arange(_MOST_RIGHT + _MOST_WRONG, device=model.device)
    is_right, is_there = (
        at < torch.tensor([[len(x)] for x in sets], device=model.device) for sets in (right, both)
    )  # (document, pair)
    scores = logits.new_full(is_there.shape, _NO_PAIR).masked_scatter(is_there, logits)
    return decoupled_softmax_loss(scores, is_right)
