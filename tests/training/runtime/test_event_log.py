"""TensorBoard's files: read back with its own reader."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest
import torch

from longtail.models.errors import ConfigError
from longtail.training.runtime.tensorboard import EventLog, check_tensorboard


@pytest.fixture
def optimizer(new_model) -> torch.optim.Optimizer:
    rates = (1e-4, 1e-3, 5e-3)
    return torch.optim.AdamW(
        [{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": rate} for rate in rates]
    )


def scalars(folder) -> dict[str, list[tuple[int, float]]]:
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = reader.EventAccumulator(str(folder))
    found.Reload()
    return {
        name: [(event.step, round(event.value, 6)) for event in found.Scalars(name)]
        for name in found.Tags()["scalars"]
    }


def test_losses_rates_and_speed_come_back(tmp_path, optimizer):
    pytest.importorskip("tensorboard")
    log = EventLog(tmp_path, "classifier", 0)
    log.note(1, 0.5, optimizer, 30.0)
    log.note(2, 0.25, optimizer, 31.0)
    log.close()
    assert scalars(tmp_path / "classifier") == {
        "loss": [(1, 0.5), (2, 0.25)],
        "documents a second": [(1, 30.0), (2, 31.0)],
        "rate/encoder": [(1, 1e-4), (2, 1e-4)],
        "rate/poolers": [(1, 1e-3), (2, 1e-3)],
        "rate/classifier": [(1, 5e-3), (2, 5e-3)],
    }


def test_a_resumed_stage_has_no_step_twice(tmp_path, optimizer):
    pytest.importorskip("tensorboard")
    for done, steps in ((0, range(1, 6)), (3, range(4, 8))):
        log = EventLog(tmp_path, "classifier", done)
        for step in steps:
            log.note(step, float(10 * done + step), optimizer, 1.0)
        log.close()
    expected = [(1, 1.0), (2, 2.0), (3, 3.0), *((step, 30.0 + step) for step in range(4, 8))]
    assert scalars(tmp_path / "classifier")["loss"] == expected


def test_without_a_folder_nothing_is_written(tmp_path, optimizer, monkeypatch):
    monkeypatch.chdir(tmp_path)
    log = EventLog(None, "classifier", 0)
    log.note(1, 0.5, optimizer, 30.0)
    log.close()
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def without_tensorboard(monkeypatch) -> Iterator[None]:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "tensorboard" else find(name)
    )
    return


def test_without_the_package_it_is_refused_by_name(without_tensorboard):
    with pytest.raises(ConfigError, match=r"tensorboard is not installed; run .*longtail\[tensor"):
        check_tensorboard()


def test_with_the_package_it_is_not(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    check_tensorboard()
