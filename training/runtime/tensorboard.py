"""TensorBoard's event files: the losses and rates of a run, to be watched."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from longtail.models.errors import ConfigError

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

_RATES = {"encoder": 0, "poolers": -2, "classifier": -1}
"""Groups of the optimizer; of the encoder's layers, the top one."""


def check_tensorboard() -> None:
    """Refuse to go on where event files can't be written.

    Raises:
        ConfigError: TensorBoard is not installed.
    """
    if importlib.util.find_spec("tensorboard") is None:
        raise ConfigError(
            "--tensorboard: the package tensorboard is not installed; run "
            "'pip install longtail[tensorboard]', or leave it out"
        )


class EventLog:
    """The event file of one stage; a resumed stage writes to another file, without repeats."""

    def __init__(self, folder: Path | None, stage: str, done: int) -> None:
        """Open the file.

        Args:
            folder: For all stages of a run; None: nothing is written.
            stage: Its name.
            done: Steps that are done; what earlier files have after that is to be overlooked.
        """
        self._writer: SummaryWriter | None = None
        if folder is not None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(folder / stage), purge_step=done + 1)

    def close(self) -> None:
        """End the file."""
        if self._writer is not None:
            self._writer.close()

    def note(
        self, step: int, loss: float, optimizer: torch.optim.Optimizer, documents_per_s: float
    ) -> None:
        """Write down a step."""
        found = {"loss": loss, "documents a second": documents_per_s}
        for name, group in _RATES.items():
            found[f"rate/{name}"] = optimizer.param_groups[group]["lr"]
        self._add(step, found)

    def _add(self, step: int, found: dict[str, float]) -> None:
        if self._writer is not None:
            for name, value in found.items():
                self._writer.add_scalar(name, value, step)
            self._writer.flush()
