"""Neural training: the dense classifier, then the dual encoder that starts from it (DEPL 3.3, 3.5).

Everything random in a step is drawn from (seed, stage, step), so a run that was killed and
resumed takes the same steps as one that was not.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Never

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64
from scipy.sparse import csr_array
from torch import Tensor, nn
from tqdm import tqdm

from models.dual_encoder import DualEncoder, Role, encode_all
from models.encoder import TokenizedTexts
from models.errors import ConfigError
from training.checkpoints import is_done, load_checkpoint, save_checkpoint
from training.config import StageConfig
from training.losses import SubsetLoss, depl_loss
from training.negatives import LabelSubsets, positives_among
from training.run_log import ProgressLog

logger = logging.getLogger(__name__)
_LOG_EVERY_S = 30.0
_CHECKPOINT_EVERY_S = 60.0
_START_TEXTS = 256  # documents and labels that set the first scale and bias of f_dual
_START_LOGIT = -4.0  # log-odds of the mean pair: about 2 positives in 100
_ORDER, _STEP = 1, 2  # what a seed is for: the order of an epoch, or the draws of a step
_ROLES: tuple[Role, Role] = ("document", "label")


class DeplModel(nn.Module):
    """The dual encoder and a classifier over the same document vectors.

    f_cls(x, l) = <phi_doc(x), w_l> + b_l (DEPL Eq. 3, with a bias).
    """

    def __init__(self, encoder: DualEncoder, priors: Float32[np.ndarray, "label"]) -> None:
        """Start the classifier at the priors.

        Args:
            encoder: The dual encoder.
            priors: Share of training documents that carry each label, above 0 and below 1.
        """
        super().__init__()
        self.encoder = encoder
        self.classifier = nn.Linear(encoder.dim, len(priors))
        with torch.no_grad():
            self.classifier.weight.zero_()
            self.classifier.bias.copy_(torch.from_numpy(np.log(priors / (1 - priors))))

    def classifier_scores(
        self, documents: Float[Tensor, "batch dim"], labels: Tensor | None = None
    ) -> Float[Tensor, "batch sampled"]:
        """Return f_cls of each document for some labels, or for all."""
        if labels is None:
            scores: Tensor = self.classifier(documents)
            return scores
        return documents @ self.classifier.weight[labels].T + self.classifier.bias[labels]


@dataclass(frozen=True, slots=True)
class TrainingTexts:
    """What neural training reads.

    Attributes:
        documents: Training documents as tokens.
        labels: Label descriptions as tokens.
        truth: The labels of each document.
        pad_id: The tokenizer's padding id.
    """

    documents: TokenizedTexts
    labels: TokenizedTexts
    truth: Float32[csr_array, "document label"]
    pad_id: int


@dataclass(frozen=True, slots=True)
class Machine:
    """Where and how precisely to compute.

    Attributes:
        device: "cpu" or "cuda".
        is_bfloat16: Whether matrix products run in bfloat16.
    """

    device: str
    is_bfloat16: bool

    @contextmanager
    def autocast(self) -> Iterator[None]:
        """Compute in bfloat16 inside, if this machine does."""
        with torch.autocast(self.device, dtype=torch.bfloat16, enabled=self.is_bfloat16):
            yield


def find_machine(precision: str) -> Machine:
    """Return the GPU if PyTorch has one, and bfloat16 where the hardware has it, unless told."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if precision != "auto":
        return Machine(device, is_bfloat16=precision == "bfloat16")
    if device == "cuda":
        return Machine(device, is_bfloat16=torch.cuda.is_bf16_supported())
    flags = torch.cpu.get_capabilities()
    return Machine(device, is_bfloat16=bool(flags.get("avx512_bf16") or flags.get("amx_bf16")))


Step = Callable[[Int64[np.ndarray, "batch"], np.random.Generator], Tensor]
"""Returns the loss of some training documents."""


def classifier_step(model: DeplModel, texts: TrainingTexts, machine: Machine) -> Step:
    """Return the step of the dense classifier: binary cross-entropy over all labels."""

    def step(rows: Int64[np.ndarray, "batch"], _: np.random.Generator) -> Tensor:
        batch = texts.documents.batch(rows, texts.pad_id, machine.device)
        return classifier_cost(model, model.encoder(batch, "document"), texts.truth[rows])

    return step


def classifier_cost(
    model: DeplModel,
    documents: Float[Tensor, "batch dim"],
    truth: Float32[csr_array, "batch label"],
) -> Float[Tensor, ""]:
    """Return the classifier's binary cross-entropy over all labels."""
    scores = model.classifier_scores(documents)
    return depl_loss(scores, torch.from_numpy(truth.toarray() > 0))


def retrieval_step(
    model: DeplModel,
    texts: TrainingTexts,
    subsets: LabelSubsets,
    machine: Machine,
    *,
    loss: SubsetLoss,
    keep_classifier: bool,
) -> Step:
    """Return the step of the dual encoder: a loss over the batch's label subset (DEPL 3.3).

    Args:
        model: Trained in place.
        texts: Documents and label descriptions.
        subsets: Draws S_b.
        machine: Where to compute.
        loss: Of the scores; L_dual in the paper.
        keep_classifier: Add the classifier's loss over the same documents and all labels, so that
            it stays in step with the moving document vectors.
    """

    def step(rows: Int64[np.ndarray, "batch"], rng: np.random.Generator) -> Tensor:
        truth = texts.truth[rows]
        labels = subsets.draw(rows, rng)
        documents = model.encoder(
            texts.documents.batch(rows, texts.pad_id, machine.device), "document"
        )
        label_batch = texts.labels.batch(labels, texts.pad_id, machine.device)
        scores = model.encoder.scores(documents, model.encoder(label_batch, "label"))
        is_positive = torch.from_numpy(positives_among(truth, labels)).to(scores.device)
        cost = loss(scores, is_positive)
        if keep_classifier:
            cost = cost + classifier_cost(model, documents, truth)
        return cost

    return step


@dataclass(frozen=True, slots=True)
class Stages:
    """Trains the stages of one run, one after the other.

    Attributes:
        texts: What they read.
        seed: Of the run.
        machine: Where to compute.
        folder: Of the run; each stage keeps its checkpoints in a folder of its name there.
    """

    texts: TrainingTexts
    seed: int
    machine: Machine
    folder: Path

    def train(self, name: str, model: DeplModel, step: Step, config: StageConfig) -> None:
        """Train one stage to its end, from its newest checkpoint if it has one.

        Args:
            name: Of the stage; seeds its randomness and stands in the progress.
            model: Trained in place, on the machine's device.
            step: The loss of a batch.
            config: Epochs, batch size and rates.
        """
        folder = self.folder / name
        if is_done(folder):
            load_checkpoint(folder, model)
            return
        optimizer = _optimizer(model, config)
        done = load_checkpoint(folder, model, optimizer)
        num_documents = len(self.texts.documents)
        per_epoch = math.ceil(num_documents / config.batch_size)
        total = per_epoch * config.epochs
        stage_seed = [self.seed, int.from_bytes(name.encode()[:4], "big")]
        clock = _Clock(time.monotonic(), time.monotonic())
        with (
            _progress_bar(name, done, per_epoch, config, num_documents) as bar,
            ProgressLog(folder, done, total) as log,
        ):
            for number in range(done, total):
                epoch, position = divmod(number, per_epoch)
                order = np.random.default_rng([*stage_seed, _ORDER, epoch]).permutation(
                    num_documents
                )
                rows = order[position * config.batch_size :][: config.batch_size].astype(np.int64)
                _set_rates(optimizer, config, number, total)
                step_seed = [*stage_seed, _STEP, number]
                loss = _train_step(model, step, optimizer, config, self.machine, rows, step_seed)
                bar.set_postfix(loss=f"{loss:.3f}", refresh=False)
                bar.update(len(rows))
                log.note(number + 1, loss, optimizer.param_groups[0]["lr"])
                clock.tick(name, number + 1, total, loss, bar)
                if clock.is_checkpoint_due() and number + 1 < total:
                    save_checkpoint(folder, number + 1, model, optimizer)
        save_checkpoint(folder, total, model, None)


def _progress_bar(
    name: str, done: int, per_epoch: int, config: StageConfig, num_documents: int
) -> tqdm[Never]:
    epochs, steps = divmod(done, per_epoch)
    return tqdm(
        total=config.epochs * num_documents,
        initial=epochs * num_documents + steps * config.batch_size,
        desc=name,
        unit="doc",
        mininterval=1.0,
    )


def _train_step(
    model: DeplModel,
    step: Step,
    optimizer: torch.optim.Optimizer,
    config: StageConfig,
    machine: Machine,
    rows: Int64[np.ndarray, "batch"],
    seed: list[int],
) -> float:
    """Take one step and return its loss; dropout and negatives follow from the seed alone."""
    rng = np.random.default_rng(seed)
    model.train()
    optimizer.zero_grad(set_to_none=True)
    with torch.random.fork_rng():
        torch.manual_seed(int(rng.integers(2**63)))
        with machine.autocast():
            loss = step(rows, rng)
        loss.backward()  # type: ignore[no-untyped-call]
    trained = [p for group in optimizer.param_groups for p in group["params"]]
    nn.utils.clip_grad_norm_(trained, config.max_gradient_norm)
    optimizer.step()
    return float(loss.detach())


@torch.no_grad()
def start_scores(model: DualEncoder, texts: TrainingTexts, *, cosine_scale: float) -> None:
    """Set s and b of f_dual so that its sigmoids start where a loss over a label subset can learn.

    A difference of cosines of 1 becomes one of `cosine_scale` in the score, and the mean pair gets
    the log-odds of a few positives in a few hundred labels. Left at s = 1, b = 0, with vectors of
    length 8, every score starts in the flat end of the sigmoid.

    Args:
        model: Changed in place.
        texts: The first documents and labels stand for all.
        cosine_scale: How sharply scores tell cosines apart.
    """
    first = [t.first(_START_TEXTS) for t in (texts.documents, texts.labels)]
    device = str(model.score_bias.device)
    documents, labels = (
        encode_all(model, tokens, role, pad_id=texts.pad_id, device=device)
        for tokens, role in zip(first, _ROLES, strict=True)
    )
    length = np.linalg.norm(documents, axis=1).mean() * np.linalg.norm(labels, axis=1).mean()
    scale = cosine_scale / float(length)
    model.log_scale.fill_(math.log(scale))
    model.score_bias.fill_(_START_LOGIT - scale * float((documents @ labels.T).mean()))


def freeze_layers(encoder: DualEncoder, count: int) -> None:
    """Keep the lowest layers of the transformer, and all that lies below them, as they are.

    Below are the embeddings with their positions and norms: were one of them trained, every step
    would still go back through the frozen layers. With a count of 0 everything is trained.

    Raises:
        ConfigError: There are not so many layers.
    """
    if count == 0:
        return
    layers = _transformer_layers(encoder)
    if layers is None or count > len(layers):
        raise ConfigError(
            f"frozen_layers is {count}, but {type(encoder.transformer).__name__} has "
            f"{0 if layers is None else len(layers)} layers that can be frozen"
        )
    highest = {id(parameter) for parameter in layers[count - 1].parameters()}
    parameters = list(encoder.transformer.parameters())  # in the order of computation
    end = max(place for place, parameter in enumerate(parameters) if id(parameter) in highest)
    for parameter in parameters[: end + 1]:
        parameter.requires_grad_(False)


def _transformer_layers(encoder: DualEncoder) -> nn.ModuleList | None:
    """Return the stack of equal layers, which every Hugging Face encoder has under some name."""
    depth = int(encoder.transformer.config.num_hidden_layers)
    stacks = (module for module in encoder.modules() if isinstance(module, nn.ModuleList))
    return next((stack for stack in stacks if len(stack) == depth), None)


def _optimizer(model: DeplModel, config: StageConfig) -> torch.optim.AdamW:
    encoder = model.encoder
    poolers = [*encoder.document_pooler.parameters(), *encoder.label_pooler.parameters()]
    scalars = [encoder.log_scale, encoder.score_bias]
    groups = [
        (encoder.transformer.parameters(), config.encoder_learning_rate),
        (poolers, config.pooler_learning_rate),
        ([*model.classifier.parameters(), *scalars], config.classifier_learning_rate),
    ]
    return torch.optim.AdamW(
        [
            {"params": [p for p in params if p.requires_grad], "lr": rate, "peak": rate}
            for params, rate in groups
        ],
        weight_decay=config.weight_decay,
    )


def _set_rates(
    optimizer: torch.optim.Optimizer, config: StageConfig, number: int, total: int
) -> None:
    warmup = config.warmup_share * total
    rise = (number + 1) / warmup if warmup else 1.0
    fall = (total - number) / max(1.0, total - warmup)
    for group in optimizer.param_groups:
        group["lr"] = group["peak"] * min(1.0, rise, fall)


@dataclass(slots=True)
class _Clock:
    """Says when the next log line and the next checkpoint are due."""

    last_log: float
    last_checkpoint: float

    def tick(self, name: str, step: int, total: int, loss: float, bar: tqdm[Never]) -> None:
        now = time.monotonic()
        if now - self.last_log < _LOG_EVERY_S:
            return
        self.last_log = now
        rate = bar.format_dict["rate"] or 0.0
        gpu_gib = torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else 0.0
        logger.info(
            "%s step %d/%d loss %.4f docs_per_s %.1f gpu_gib %.1f",
            name, step, total, loss, rate, gpu_gib,
        )  # fmt: skip

    def is_checkpoint_due(self) -> bool:
        now = time.monotonic()
        if now - self.last_checkpoint < _CHECKPOINT_EVERY_S:
            return False
        self.last_checkpoint = now
        return True
