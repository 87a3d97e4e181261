"""Neural training: its steps, its schedule, and that a broken run goes on as if never broken."""

from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from longtail.models.encoders.dual_encoder import encode_all
from longtail.training.configuration.sections import ClassifierConfig, StageConfig
from longtail.training.losses import depl_loss
from longtail.training.neural import loop as stages
from longtail.training.neural.loop import Stages, encoding_in_parts
from longtail.training.neural.model import (
    DeplModel,
    TrainingTexts,
    checkpoint_gradients,
    freeze_layers,
)
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


OPTIONS: dict[str, dict] = {"batch_tokens": {"batch_tokens": 300}, "accumulate": {"accumulate": 3}}
OPTIONS["all"] = {key: value for option in OPTIONS.values() for key, value in option.items()}


def config_of(**options) -> StageConfig:
    return ClassifierConfig.model_validate(CONFIG.model_dump() | options)


@pytest.fixture
def train(texts, subsets):
    """Trains a stage of the dual encoder."""

    def run(folder, model, config, *, machine=CPU, break_at=None, **others):
        inner = retrieval_step(model, texts, subsets, machine, loss=depl_loss, keep_classifier=True)
        taken, batches = count(), []

        def step(rows, rng):
            if next(taken) == break_at:
                raise KeyboardInterrupt
            batches.append(rows.tolist())
            return inner(rows, rng)

        stage = Stages(texts, seed=1, machine=machine, folder=folder, **others)
        stage.train("classifier", model, step, config)
        return batches

    return run


def assert_a_broken_stage_ends_as_an_unbroken_one(
    train, new_model, tmp_path, config, *, machine=CPU, places=(0.5,)
):
    whole = new_model()
    batches = train(tmp_path / "whole", whole, config, machine=machine)
    for place in places:
        number = max(1, int(place * len(batches)))
        folder, resumed = tmp_path / str(number), new_model()
        with pytest.raises(KeyboardInterrupt):
            train(folder, new_model(), config, machine=machine, break_at=number)
        assert train(folder, resumed, config, machine=machine) == batches[number:]
        assert equal(resumed, whole)


@pytest.mark.slow
@pytest.mark.parametrize("option", OPTIONS)
def test_a_broken_stage_ends_as_an_unbroken_one(train, new_model, tmp_path, monkeypatch, option):
    monkeypatch.setattr(stages, "_CHECKPOINT_EVERY_S", 0.0)
    config = config_of(**OPTIONS[option])
    assert_a_broken_stage_ends_as_an_unbroken_one(
        train, new_model, tmp_path, config, places=(0.2, 0.7)
    )


@pytest.mark.parametrize(
    ("option", "is_alike"), [({"accumulate": 4}, True), ({"batch_tokens": 200}, False)]
)
def test_parts_alone_change_nothing_that_is_learned(train, new_model, tmp_path, option, is_alike):
    models = []
    for name, options in (("plain", {}), ("other", option)):
        model = new_model()
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        train(tmp_path / name, model, config_of(**options))
        models.append(torch.cat([value.flatten() for value in model.parameters()]))
    # Adam turns the last bits of tiny gradients into steps of full size: so few may differ.
    apart = ((models[0] - models[1]).abs() > 1e-5).float().mean().item()
    assert (apart < 1e-3) is is_alike


ROWS = np.arange(16)


@pytest.fixture
def new_still_model(new_model):
    """Makes models without dropout, in training mode, whose classifier has learned something."""

    def make() -> DeplModel:
        model = new_model().train()
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        nn.init.normal_(model.classifier.weight, generator=torch.Generator().manual_seed(1))
        return model

    return make


@pytest.fixture
def steps(texts, subsets):
    """Makes a step for a model: of the classifier, or of the dual encoder with any loss."""

    def make(model: DeplModel, loss=None):
        if loss is None:
            return classifier_step(model, texts, CPU)
        return retrieval_step(model, texts, subsets, CPU, loss=loss, keep_classifier=True)

    return make


def gradients(model: DeplModel, step, num_parts: int, machine: Machine = CPU) -> dict:
    """Return the loss and all gradients of a step."""
    with encoding_in_parts(model, machine, num_parts), machine.autocast():
        loss = step(ROWS, np.random.default_rng(3))
        loss.backward()
    found = {name: value.grad for name, value in model.named_parameters()}
    return {"loss": loss.detach(), **{k: v for k, v in found.items() if v is not None}}


def bytes_kept(model: DeplModel, step, num_parts: int) -> int:
    """Return the size of all tensors that wait for the backward pass."""
    kept: dict[int, int] = {}

    def pack(tensor):
        kept[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    with (
        encoding_in_parts(model, CPU, num_parts),
        torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
    ):
        loss = step(ROWS, np.random.default_rng(3))
    parameters = {parameter.data_ptr() for parameter in model.parameters()}
    assert loss.requires_grad
    return sum(size for pointer, size in kept.items() if pointer not in parameters)


@pytest.mark.parametrize(
    ("loss", "num_parts"), [(None, 2), (None, 40), (depl_loss, 3), (depl_loss, 5)]
)
def test_in_parts_a_step_has_the_loss_and_the_gradients_of_the_whole(
    new_still_model, steps, loss, num_parts
):
    models = [new_still_model() for _ in range(2)]
    whole, parts = (
        gradients(model, steps(model, loss), count)
        for model, count in zip(models, (1, num_parts), strict=True)
    )
    assert whole.keys() == parts.keys()
    for name, value in whole.items():
        torch.testing.assert_close(parts[name], value, rtol=1e-3, atol=1e-5, msg=name)


def test_with_dropout_parts_are_encoded_twice_with_the_same_draws(new_model, texts):
    model = new_model().train()
    batch, seen = texts.documents.batch(ROWS, 0, "cpu"), []
    dropout = model.encoder.transformer.embeddings.dropout
    dropout.register_forward_hook(lambda *args: seen.append(args[2]))
    with encoding_in_parts(model, CPU, 4):
        torch.manual_seed(3)
        vectors = model.encode(batch, "document")
        after = torch.rand(1)
        vectors.sum().backward()
    assert len(seen) == 8  # the last part first, on the way back
    for first, again in zip(seen[:4], seen[:3:-1], strict=True):
        assert torch.equal(first, again)
    assert not torch.allclose(vectors, model.eval().encoder(batch, "document"))
    torch.manual_seed(3)
    torch.randint(2**62, ())
    assert torch.equal(after, torch.rand(1))


def test_gradient_checkpointing_has_the_same_gradients_in_less_memory(new_still_model, steps):
    models = [new_still_model() for _ in range(2)]
    checkpoint_gradients(models[1].encoder)
    plain, sparing = (gradients(model, steps(model), 1) for model in models)
    assert plain.keys() == sparing.keys()
    for name, value in plain.items():
        torch.testing.assert_close(sparing[name], value, rtol=1e-5, atol=1e-7, msg=name)
    kept = [bytes_kept(model, steps(model), 1) for model in models]
    assert kept[1] < 0.5 * kept[0]
