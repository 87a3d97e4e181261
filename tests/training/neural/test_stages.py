"""Stages with every option: broken ones end as unbroken ones, and each option does what it says."""

from itertools import count

import pytest
import torch

from longtail.training.configuration.sections import ClassifierConfig, StageConfig
from longtail.training.losses import depl_loss
from longtail.training.neural import loop as stages
from longtail.training.neural.loop import Stages
from longtail.training.neural.model import DeplModel
from longtail.training.neural.steps import retrieval_step
from longtail.training.runtime.distributed import Machine

CPU = Machine("cpu", is_bfloat16=False)
CONFIG = ClassifierConfig(epochs=2, batch_size=16, encoder_learning_rate=1e-3)
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


def equal(first: DeplModel, second: DeplModel) -> bool:
    pairs = zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    return all(torch.equal(*pair) for pair in pairs)


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
