"""Checkpoints of neural training: safetensors and JSON, replaced atomically, newest wins."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from longtail.models.files.durable import read_json, sync_tree, write_json_durably
from longtail.models.platform import sync_folder

_MODEL_NAME = "model.safetensors"
_OPTIMIZER_NAME = "optimizer.safetensors"
_PROGRESS_NAME = "progress.json"


def save_checkpoint(
    folder: Path,
    step: int,
    model: nn.Module,
    optimizer: torch.optim.Optimizer | None,
) -> None:
    """Write a checkpoint beside the last one, then delete that; a crash leaves one of them whole.

    Args:
        folder: Holds the checkpoints of one stage, as folders named by their step.
        step: Optimizer steps done.
        model: All its parameters and buffers are kept.
        optimizer: Its state is kept; None when the stage is done and it is not needed again.
    """
    states: dict[str, Mapping[str, Tensor]] = {_MODEL_NAME: model.state_dict()}
    if optimizer is not None:
        states[_OPTIMIZER_NAME] = flat_state(optimizer)
    save_states(folder, step, states, is_done=optimizer is None)


def save_states(
    folder: Path,
    step: int,
    states: Mapping[str, Mapping[str, Tensor]],
    *,
    is_done: bool,
) -> None:
    """Write a checkpoint of files of tensors (see `save_checkpoint`).

    Args:
        folder: Holds the checkpoints of one stage, as folders named by their step.
        step: Steps done.
        states: The tensors of each safetensors file, by name.
        is_done: Whether the stage was trained to its end.
    """
    folder.mkdir(parents=True, exist_ok=True)
    incoming = folder / f".incoming-{os.getpid()}"
    shutil.rmtree(incoming, ignore_errors=True)
    incoming.mkdir()
    for name, tensors in states.items():
        save_file(_apart(tensors), incoming / name)
    write_json_durably(incoming / _PROGRESS_NAME, {"step": step, "is_done": is_done})
    sync_tree(incoming)
    final = folder / str(step)
    shutil.rmtree(final, ignore_errors=True)
    incoming.rename(final)
    sync_folder(folder)
    for path in folder.iterdir():
        if path != final:
            shutil.rmtree(path)


def _apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors of which each has memory of its own, as safetensors wants it.

    Some encoders have a weight under two names: the token embeddings of T5, for example.
    """
    seen: set[int] = set()
    apart = {}
    for name, tensor in tensors.items():
        storage = tensor.untyped_storage().data_ptr()
        apart[name] = tensor.clone() if storage in seen else tensor.contiguous()
        seen.add(storage)
    return apart


def load_checkpoint(
    folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer | None = None
) -> int:
    """Restore the newest checkpoint of a stage, if there is one, and return its step (else 0).

    Args:
        folder: What `save_checkpoint` wrote to.
        model: Gets the parameters and buffers.
        optimizer: Gets its state; None: leave it out.
    """
    newest = newest_checkpoint(folder)
    if newest is None:
        return 0
    model.load_state_dict(load_file(newest / _MODEL_NAME))
    if optimizer is not None and (newest / _OPTIMIZER_NAME).exists():
        restore_state(optimizer, load_file(newest / _OPTIMIZER_NAME))
    return int(newest.name)


def newest_checkpoint(folder: Path) -> Path | None:
    """Return the folder of the newest whole checkpoint of a stage."""
    if not folder.is_dir():
        return None
    steps = [int(path.name) for path in folder.iterdir() if path.name.isdigit()]
    return folder / str(max(steps)) if steps else None


def is_done(folder: Path) -> bool:
    """Return whether the stage whose checkpoints lie here was trained to its end."""
    newest = newest_checkpoint(folder)
    return newest is not None and bool(read_json(newest / _PROGRESS_NAME)["is_done"])


def flat_state(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the optimizer's tensors, named by parameter number and field."""
    return {
        f"{number}.{field}": torch.as_tensor(value).contiguous()
        for number, fields in optimizer.state_dict()["state"].items()
        for field, value in fields.items()
    }


def restore_state(optimizer: torch.optim.Optimizer, flat: Mapping[str, Tensor]) -> None:
    """Give an optimizer the state that `flat_state` returned."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in flat.items():
        number, field = key.split(".", 1)
        state.setdefault(int(number), {})[field] = value
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})
