"""Neural training: its steps, its schedule, and that a broken run goes on as if never broken."""

from pathlib import Path

import numpy as np
import pytest
import torch

from longtail.models.encoders.dual_encoder import encode_all
from longtail.training.configuration.sections import ClassifierConfig, StageConfig
from longtail.training.losses import depl_loss
from longtail.training.neural import loop as stages
from longtail.training.neural.loop import Stages
from longtail.training.neural.model import DeplModel, TrainingTexts, freeze_layers
from longtail.training.neural.steps import Step, classifier_step, retrieval_step
from longtail.training.runtime.distributed import Machine

CPU = Machine("cpu", is_bfloat16=False)
CONFIG = ClassifierConfig(epochs=2, batch_size=16, encoder_learning_rate=1e-3)
STEPS = 8  # of 60 documents, 16 at a time, twice


def run_stage(
    texts: TrainingTexts, folder: Path, model: DeplModel, step: Step, config: StageConfig = CONFIG
) -> DeplModel:
    Stages(texts, seed=1, machine=CPU, folder=folder).train("classifier", model, step, config)
    return model


def weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def equal(first: DeplModel, second: DeplModel) -> bool:
    pairs = zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    return all(torch.equal(*pair) for pair in pairs)


def broken_after(step: Step, count: int) -> Step:
    calls: list[int] = []

    def broken(rows, rng):
        if len(calls) == count:
            raise KeyboardInterrupt
        calls.append(1)
        return step(rows, rng)

    return broken


def recording(step: Step, seen: list) -> Step:
    def recorded(rows, rng):
        loss = step(rows, rng)
        seen.append((rows.tolist(), loss.item()))
        return loss

    return recorded


# ---- the two steps ----


def test_retrieval_loss_is_that_of_the_scores_over_the_drawn_labels(new_model, texts, subsets):
    model, rows = new_model().eval(), np.arange(6)
    step = retrieval_step(model, texts, subsets, CPU, loss=depl_loss, keep_classifier=False)
    loss = step(rows, np.random.default_rng(3))
    labels = subsets.draw(rows, np.random.default_rng(3))
    documents = encode_all(model.encoder, texts.documents, "document", pad_id=0)[rows]
    vectors = encode_all(model.encoder, texts.labels, "label", pad_id=0)[labels]
    expected = depl_loss(
        torch.from_numpy(documents @ vectors.T),
        torch.from_numpy(texts.truth.toarray()[np.ix_(rows, labels)] > 0),
    )
    assert loss.item() == pytest.approx(expected.item(), rel=1e-4)


def test_the_retrieval_step_minimises_the_loss_that_it_is_given(new_model, texts, subsets):
    model, rows, seen = new_model().eval(), np.arange(6), []

    def loss(scores, is_positive):
        seen.append(is_positive)
        return 3 * depl_loss(scores, is_positive)

    step = retrieval_step(model, texts, subsets, CPU, loss=loss, keep_classifier=False)
    found = step(rows, np.random.default_rng(3))
    labels = subsets.draw(rows, np.random.default_rng(3))
    documents = encode_all(model.encoder, texts.documents, "document", pad_id=0)[rows]
    vectors = encode_all(model.encoder, texts.labels, "label", pad_id=0)[labels]
    expected = 3 * depl_loss(torch.from_numpy(documents @ vectors.T), *seen)
    assert found.item() == pytest.approx(expected.item(), rel=1e-4)


def test_keeping_the_classifier_adds_its_loss(new_model, texts, subsets):
    model, rows = new_model().eval(), np.arange(6)
    losses = {
        keep: retrieval_step(model, texts, subsets, CPU, loss=depl_loss, keep_classifier=keep)(
            rows, np.random.default_rng(3)
        ).item()
        for keep in (False, True)
    }
    alone = classifier_step(model, texts, CPU)(rows, np.random.default_rng(3)).item()
    assert losses[True] - losses[False] == pytest.approx(alone, rel=1e-4)


# ---- stages ----


def test_a_seed_gives_the_same_weights_and_another_one_others(new_model, texts, tmp_path):
    found = []
    for number, seed in enumerate((1, 1, 2)):
        model = new_model()
        stages = Stages(texts, seed, CPU, tmp_path / str(number))
        stages.train("classifier", model, classifier_step(model, texts, CPU), CONFIG)
        found.append(model)
    assert equal(found[0], found[1])
    assert not equal(found[0], found[2])


def test_training_leaves_the_global_random_state_alone(new_model, texts, tmp_path):
    model = new_model()
    torch.manual_seed(11)
    expected = torch.rand(3)
    torch.manual_seed(11)
    run_stage(texts, tmp_path, model, classifier_step(model, texts, CPU))
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("num_steps", [1, 3, 4, 7])
def test_a_broken_stage_goes_on_to_the_weights_of_an_unbroken_one(
    new_model, texts, subsets, tmp_path, monkeypatch, num_steps
):
    def step_of(model: DeplModel) -> Step:
        return retrieval_step(model, texts, subsets, CPU, loss=depl_loss, keep_classifier=True)

    model, broken, resumed = new_model(), new_model(), new_model()
    run_stage(texts, tmp_path / "whole", model, step_of(model))
    monkeypatch.setattr(stages, "_CHECKPOINT_EVERY_S", 0.0)
    with pytest.raises(KeyboardInterrupt):
        run_stage(texts, tmp_path / "broken", broken, broken_after(step_of(broken), num_steps))
    seen: list = []
    run_stage(texts, tmp_path / "broken", resumed, recording(step_of(resumed), seen))
    assert len(seen) == STEPS - num_steps
    assert equal(resumed, model)


def test_a_step_in_bfloat16_learns_in_float32(new_model, texts, tmp_path):
    machine = Machine("cpu", is_bfloat16=True)
    model, seen = new_model(), []
    step = recording(classifier_step(model, texts, machine), seen)
    Stages(texts, 1, machine, tmp_path).train("classifier", model, step, CONFIG)
    assert np.isfinite([loss for _, loss in seen]).all()
    assert {value.dtype for value in model.state_dict().values()} == {torch.float32}


# ---- frozen layers ----


@pytest.mark.parametrize(("count", "num_frozen"), [(0, 0), (1, 5 + 16), (2, 5 + 32)])
def test_frozen_layers_and_all_below_them_keep_their_weights(
    new_model, texts, tmp_path, count, num_frozen
):
    model = new_model()
    freeze_layers(model.encoder, count)
    frozen = {name for name, value in model.named_parameters() if not value.requires_grad}
    before = weights(model)
    run_stage(texts, tmp_path, model, classifier_step(model, texts, CPU))
    after = model.state_dict()
    unchanged = {name for name in after if torch.equal(before[name], after[name])}
    assert len(frozen) == num_frozen
    assert frozen <= unchanged
    if count < 2:
        assert any(f"layer.{count}" in name for name in set(after) - unchanged)
