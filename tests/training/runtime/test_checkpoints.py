"""Checkpoints: what comes back is to the bit what was saved, and a crash leaves one whole."""

import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import nn

from longtail.training.runtime import checkpoints
from longtail.training.runtime.checkpoints import (
    is_done,
    load_checkpoint,
    newest_checkpoint,
    save_checkpoint,
)
from longtail.training.runtime.distributed import Machine, forked_random


def fresh(seed: int) -> tuple[nn.Module, torch.optim.AdamW]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    model[0].bias.requires_grad_(False)  # a frozen parameter has no state
    parts = [[x for x in part.parameters() if x.requires_grad] for part in (model[0], model[1:])]
    groups = [{"params": x, "lr": rate} for x, rate in zip(parts, (1e-2, 1e-3), strict=True)]
    return model, torch.optim.AdamW(groups, weight_decay=0.01)


def take_steps(model: nn.Module, optimizer: torch.optim.Optimizer, numbers: range) -> None:
    for number in numbers:
        generator = torch.Generator().manual_seed(number)
        loss = model(torch.randn(6, 4, generator=generator)).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()


def equal(first: dict, second: dict) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[k], second[k]) for k in first)


def test_training_that_stops_and_goes_on_equals_training_in_one_go_to_the_bit(tmp_path):
    model, optimizer = fresh(0)
    take_steps(model, optimizer, range(3))
    save_checkpoint(tmp_path, 3, model, optimizer)
    take_steps(model, optimizer, range(3, 6))
    resumed, its_optimizer = fresh(99)
    assert load_checkpoint(tmp_path, resumed, its_optimizer) == 3
    take_steps(resumed, its_optimizer, range(3, 6))
    assert equal(resumed.state_dict(), model.state_dict())


def test_the_state_of_the_optimizer_comes_back_to_the_bit(tmp_path):
    model, optimizer = fresh(0)
    take_steps(model, optimizer, range(3))
    save_checkpoint(tmp_path, 3, model, optimizer)
    resumed, its_optimizer = fresh(99)
    load_checkpoint(tmp_path, resumed, its_optimizer)
    saved, loaded = optimizer.state_dict(), its_optimizer.state_dict()
    assert saved["state"].keys() == loaded["state"].keys()
    assert all(equal(saved["state"][k], loaded["state"][k]) for k in saved["state"])
    assert saved["param_groups"] == loaded["param_groups"]


def test_of_two_checkpoints_the_newest_wins(tmp_path):
    model, optimizer = fresh(0)
    save_checkpoint(tmp_path, 9, model, optimizer)
    shutil.copytree(tmp_path / "9", tmp_path / "10")  # killed before the old one was deleted
    assert newest_checkpoint(tmp_path) == tmp_path / "10"
    assert load_checkpoint(tmp_path, model, optimizer) == 10


@pytest.mark.parametrize("at", ["save_file", "write_json_durably", "sync_tree"])
def test_a_save_that_breaks_leaves_the_checkpoint_before(tmp_path, monkeypatch, at):
    model, optimizer = fresh(0)
    save_checkpoint(tmp_path, 1, model, optimizer)

    def broken(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, at, broken)
        with pytest.raises(KeyboardInterrupt):
            save_checkpoint(tmp_path, 2, model, optimizer)
    assert load_checkpoint(tmp_path, *fresh(9)) == 1


def test_a_stage_is_done_when_it_was_saved_without_its_optimizer(tmp_path):
    model, optimizer = fresh(0)
    assert not is_done(tmp_path)
    save_checkpoint(tmp_path, 1, model, optimizer)
    assert not is_done(tmp_path)
    save_checkpoint(tmp_path, 2, model, None)
    assert is_done(tmp_path)


def test_a_weight_of_two_names_is_saved_under_both(tmp_path):
    first, second = (nn.ModuleDict({"a": nn.Linear(3, 2), "b": nn.Linear(3, 2)}) for _ in range(2))
    for model in (first, second):
        model["b"].weight = model["a"].weight
    save_checkpoint(tmp_path, 1, first, None)
    load_checkpoint(tmp_path, second)
    assert equal(second.state_dict(), first.state_dict())
    assert second["a"].weight is second["b"].weight


@pytest.mark.parametrize(("device", "devices"), [("cpu", []), ("cuda", [2])])
def test_draws_touch_no_gpu_but_the_current_one(monkeypatch, device, devices):
    """The state of all of them takes memory of each, for every process."""
    asked = []

    @contextmanager
    def noting(devices=None):
        asked.append(devices)
        yield

    monkeypatch.setattr(torch.random, "fork_rng", noting)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 2)
    with forked_random(5, device):
        first = torch.rand(3)
    with Machine(device, is_bfloat16=False).forked_random(5):
        assert torch.equal(torch.rand(3), first)
    assert asked == [devices, devices]


def test_all_training_forks_draws_with_devices():
    """`fork_rng()` alone takes all GPUs."""
    folder = Path(__file__).parents[3] / "training"
    texts = {path: path.read_text() for path in folder.rglob("*.py")}
    assert [path.name for path, text in texts.items() if "fork_rng(" in text] == ["distributed.py"]


def test_draws_follow_from_the_seed_and_leave_no_trace():
    machine = Machine("cpu", is_bfloat16=False)
    torch.manual_seed(1)
    with machine.forked_random(5):
        first = torch.rand(3)
    after = torch.rand(3)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(3), after)
    with machine.forked_random(5):
        assert torch.equal(torch.rand(3), first)
