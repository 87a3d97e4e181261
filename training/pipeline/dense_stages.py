"""Both stages of neural training, put together from a run's configuration."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from longtail.models.names import CLASSIFIER
from longtail.training.configuration.run import TrainingConfig
from longtail.training.learning.objectives import make_objective, make_subset_loss
from longtail.training.neural.label_subsets import LabelSubsets
from longtail.training.neural.loop import Stages
from longtail.training.neural.model import TrainingTexts
from longtail.training.neural.pair_steps import PairBatches, encoder_inputs, pair_step
from longtail.training.neural.steps import Step, classifier_step, retrieval_step, start_scores
from longtail.training.pipeline.dense import DenseStart
from longtail.training.runtime.run_log import stage_cost


@dataclass(frozen=True, slots=True)
class TrainingInputs:
    """What both stages of neural training read.

    Attributes:
        texts: Documents and label descriptions.
        subsets: The labels that each step of the dual encoder scores.
    """

    texts: TrainingTexts
    subsets: LabelSubsets


def train_stages(
    start: DenseStart,
    inputs: TrainingInputs,
    config: TrainingConfig,
    folder: Path,
) -> None:
    """Train the dense classifier, then the dual encoder that starts from it (DEPL 3.3, 3.5).

    Args:
        start: Its model is trained in place, by all processes of its machine, which then part.
        inputs: What is read; the same in all processes.
        config: Of both stages.
        folder: Of the run; each stage keeps its checkpoints there, and resumes after the newest.
            Of the other processes than the first: a folder for what none will need.
    """
    model, machine, texts = start.model, start.machine, inputs.texts
    stages = Stages(texts, config.seed, machine, folder)
    with stage_cost(folder, "classifier"):
        step = classifier_step(model, texts, machine)
        stages.train("classifier", model, step, config.classifier)
    start_scores(model.encoder, texts, cosine_scale=config.retrieval.cosine_scale)
    with stage_cost(folder, "retrieval"):
        step = make_retrieval_step(start, texts, inputs.subsets, config, folder)
        stages.train("retrieval", model, step, config.retrieval)
    machine.processes.leave()


def make_retrieval_step(
    start: DenseStart,
    texts: TrainingTexts,
    subsets: LabelSubsets,
    config: TrainingConfig,
    folder: Path,
) -> Step:
    """Return the dual encoder's step: over label subsets, or over pairs and their negatives."""
    model, machine, retrieval = start.model, start.machine, config.retrieval
    keep = CLASSIFIER in config.scorers
    if retrieval.negatives is None:
        loss = make_subset_loss(retrieval.loss)
        return retrieval_step(model, texts, subsets, machine, loss=loss, keep_classifier=keep)
    inputs = encoder_inputs(
        model,
        texts,
        subsets.hard,
        retrieval,
        machine,
        seed=config.seed,
        folder=folder / "retrieval-negatives",
    )
    batches = PairBatches(
        texts.truth,
        retrieval.negatives.exclude,
        retrieval.negatives.most_pairs(retrieval.label_subset_size),
    )
    objective = make_objective(retrieval.learning, inputs)
    return pair_step(model, texts, batches, objective, machine, keep_classifier=keep)
