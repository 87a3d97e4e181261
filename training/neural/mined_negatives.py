"""Hard negatives from the dual encoder itself, looked for again every n steps.

As ANCE does (Xiong et al. 2021, "Approximate Nearest Neighbor Negative Contrastive Learning for
Dense Text Retrieval"): negatives that were hard for another model, or for this one long ago, teach
little. Here the search is exact, and the training waits for it.
"""

from __future__ import annotations

import logging
import math
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float32, Int64
from safetensors.numpy import load_file
from scipy.sparse import csr_array

from models.encoders.dual_encoder import encode_all
from models.encoders.tokens import TokenizedTexts
from models.errors import ConfigError
from models.ranking.top_k import NO_LABEL
from training.configuration.sections import RefreshConfig
from training.neural.label_subsets import LabelSubsets
from training.neural.model import DeplModel, TrainingTexts
from training.neural.steps import Documents
from training.runtime.checkpoints import newest_checkpoint, save_arrays
from training.runtime.machine import Machine

logger = logging.getLogger(__name__)

_MOST_SCORES = 2**24
"""Of documents and labels, held at a time: 64 MiB."""


class RefreshedNegatives:
    """Label subsets whose hard negatives are the labels that the dual encoder wrongly ranks best.

    At every n-th step all labels are encoded, and the documents of the next n steps; until the
    first such step the hard negatives are those that the subsets came with, the sparse model's. So
    a refresh costs the vectors of all labels, and those of no more documents than are trained on
    until the next one.

    What was mined lies in a file for each refresh, for as long as the newest checkpoint is older
    than the refresh after it, so that a broken stage goes on with the same negatives.

    Attributes:
        subsets: Changed in place, document by document.
    """

    def __init__(
        self,
        model: DeplModel,
        texts: TrainingTexts,
        subsets: LabelSubsets,
        config: RefreshConfig,
        machine: Machine,
        *,
        folder: Path,
        checkpoints: Path,
    ) -> None:
        """Start with the negatives of the sparse model.

        Args:
            model: Whose encoder ranks, as it is at each refresh.
            texts: Documents and label descriptions.
            subsets: With hard negatives for each document, hardest first; left as they are.
            config: How often, and what share.
            machine: Where to compute.
            folder: For the mined negatives.
            checkpoints: The folder of the stage's checkpoints.
        """
        self.subsets = replace(subsets, hard=subsets.hard.copy())
        self._others = subsets.hard
        self._model = model
        self._texts = texts
        self._config = config
        self._machine = machine
        self._folder = folder
        self._checkpoints = checkpoints
        self._current = 0

    def prepare(self, step: int, documents: Documents) -> None:
        """Make the hard negatives ready that a step is to draw from.

        Args:
            step: Steps taken before it.
            documents: Of any steps of the stage.

        Raises:
            ConfigError: The stage goes on between two refreshes, and what the first one mined is
                gone.
        """
        refresh = step - step % self._config.every_steps
        if refresh == self._current:
            return
        mined = self._machine.ranks.from_first(lambda: self._mined(refresh, step, documents))
        self.subsets.hard[mined["documents"]] = mined["hard"]
        self._current = refresh

    def _mined(self, refresh: int, step: int, documents: Documents) -> dict[str, np.ndarray]:
        """Return what is mined at a refresh, for which documents; from its file if there is one.

        Raises:
            ConfigError: There is none, and the model has gone on since.
        """
        path = self._folder / f"{refresh}.safetensors"
        if path.exists():
            return load_file(path)
        if refresh < step:
            raise ConfigError(
                f"folder {str(self._folder)!r} lacks the hard negatives mined at step {refresh}, "
                f"and the stage goes on at step {step}; delete {str(self._checkpoints)!r} to train "
                "it again from its start"
            )
        rows = documents(step, step + self._config.every_steps)
        mined = {"documents": rows, "hard": self._mine(step, rows)}
        self._folder.mkdir(parents=True, exist_ok=True)
        save_arrays(path, mined)
        self._drop_old()
        return mined

    def _mine(
        self, step: int, rows: Int64[np.ndarray, document]
    ) -> Int64[np.ndarray, "document hard"]:
        """Return the hard negatives of some documents: those mined, mixed with the others."""
        began, is_training = time.monotonic(), self._model.training
        texts, count = self._texts, self._others.shape[1]
        found = hardest_wrong(
            self._encoded(texts.documents.take(rows.tolist()), is_label=False),
            self._encoded(texts.labels, is_label=True),
            texts.truth[rows],
            math.ceil(self._config.share * count),
            device=self._machine.device,
        )
        self._model.train(is_training)
        logger.info(
            "hard negatives of %d documents mined among %d labels before step %d in %.1f s",
            len(rows), len(texts.labels), step, time.monotonic() - began,
        )  # fmt: skip
        return mixed(found, self._others[rows])

    def _encoded(
        self, tokens: TokenizedTexts, *, is_label: bool
    ) -> Float32[np.ndarray, "text dim"]:
        with self._machine.autocast():
            return encode_all(
                self._model.encoder,
                tokens,
                "label" if is_label else "document",
                pad_id=self._texts.pad_id,
                device=self._machine.device,
            )

    def _drop_old(self) -> None:
        """Delete what no stage can need that goes on from the newest checkpoint."""
        newest = newest_checkpoint(self._checkpoints)
        done = 0 if newest is None else int(newest.name)
        needed = done - done % self._config.every_steps
        for path in self._folder.glob("*.safetensors"):
            if int(path.stem) < needed:
                path.unlink()


def hardest_wrong(
    documents: Float32[np.ndarray, "document dim"],
    labels: Float32[np.ndarray, "label dim"],
    truth: Float32[csr_array, "document label"],
    count: int,
    *,
    device: str,
) -> Int64[np.ndarray, "document count"]:
    """Return the labels of highest inner product that each document does not carry, hardest first.

    f_dual rises with the inner product, so it ranks the same way.

    Args:
        documents: phi_doc of each.
        labels: phi_label of each.
        truth: The labels that each document carries.
        count: Wanted a document; rows with fewer are padded with `NO_LABEL`.
        device: Where to compute.
    """
    hardest = np.full((len(documents), count), NO_LABEL, dtype=np.int64)
    transposed = torch.from_numpy(labels).to(device).T
    num_parts = len(documents) * len(labels) // _MOST_SCORES + 1
    for rows in np.array_split(np.arange(len(documents)), num_parts):
        scores = torch.from_numpy(documents[rows]).to(device) @ transposed
        carried = torch.from_numpy(np.stack(truth[rows].nonzero()).astype(np.int64)).to(device)
        scores[carried[0], carried[1]] = -torch.inf
        best = scores.topk(min(count, len(labels)))
        wrong = torch.where(torch.isneginf(best.values), NO_LABEL, best.indices)
        hardest[rows, : wrong.shape[1]] = wrong.cpu().numpy()
    return hardest


def mixed(
    mined: Int64[np.ndarray, "document mined"], others: Int64[np.ndarray, "document hard"]
) -> Int64[np.ndarray, "document hard"]:
    """Return mined negatives with the first others that are not among them, each label once.

    Both stand in their order and are spread evenly over the ranks, so that either kind keeps its
    share where a label subset has no room for the last ranks.

    Args:
        mined: Hardest first, padded with `NO_LABEL`; no more than there are others.
        others: Hardest first, padded alike.
    """
    num_others = others.shape[1] - mined.shape[1]
    is_new = others != NO_LABEL
    for rank in range(mined.shape[1]):
        is_new &= others != mined[:, [rank]]
    order = np.argsort(~is_new, axis=1, kind="stable")[:, :num_others]
    kept = np.take_along_axis(np.where(is_new, others, NO_LABEL), order, axis=1)
    places = [(np.arange(part.shape[1]) + 0.5) / max(1, part.shape[1]) for part in (mined, kept)]
    ranks = np.argsort(np.concatenate(places), kind="stable")
    found: Int64[np.ndarray, "document hard"] = np.concatenate([mined, kept], axis=1)[:, ranks]
    return found
