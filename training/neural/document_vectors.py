"""Vectors of documents and labels by the trained encoder, in parts that survive a kill."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import Float32
from safetensors.numpy import load_file

from longtail.models.encoders.dual_encoder import DualEncoder, Role, encode_all
from longtail.models.encoders.tokens import TokenizedTexts
from longtail.models.names import Precision
from longtail.models.parts.batches import TextBatch
from longtail.models.parts.model_parts import ModelParts
from longtail.models.predict.loading import take_fastest_backend
from longtail.training.runtime.distributed import Machine, find_machine
from longtail.training.runtime.kept import save_arrays
from longtail.training.runtime.run_log import progress_bar

_PART_SIZE = 2**14  # texts whose vectors are in one file


def inference_copy(encoder: DualEncoder, machine: Machine) -> DualEncoder:
    """Return a copy of a trained encoder that computes as a service does: as fast as it can."""
    twin = copy.deepcopy(encoder).eval()
    twin.to(machine.dtype)
    if machine.device == "cpu":
        take_fastest_backend(twin)
    return twin


def vectors_of_texts(
    parts: ModelParts, precision: Precision, texts: list[str]
) -> Float32[np.ndarray, "text dim"]:
    """Return vectors of documents by the encoder of a model, as its training makes them."""
    assert parts.dense is not None
    machine = find_machine(precision)
    encoder = inference_copy(parts.dense.encoder.to(machine.device), machine)
    parts = replace(parts, dense=replace(parts.dense, encoder=encoder))

    with progress_bar(total=len(texts), desc="vectors", unit="doc") as bar:
        return TextBatch(texts, parts, machine.device, bar.update).vectors


def encode_texts(
    encoder: DualEncoder,
    texts: TokenizedTexts,
    role: Role,
    *,
    pad_id: int,
    device: str,
    folder: Path,
) -> Float32[np.ndarray, "text dim"]:
    """Return phi_doc or phi_label of texts; parts that are in the folder are not made again."""
    folder.mkdir(parents=True, exist_ok=True)
    vectors = np.empty((len(texts), encoder.dim), dtype=np.float32)
    with progress_bar(total=len(texts), desc=f"{role} vectors", unit=role) as bar:
        for start in range(0, len(texts), _PART_SIZE):
            part = vectors[start : start + _PART_SIZE]
            path = folder / f"{role}s-{start:08d}.safetensors"
            if path.exists():
                part[:] = load_file(path)["vectors"]
                bar.update(len(part))
                continue
            part[:] = encode_all(
                encoder,
                texts.take(range(start, start + len(part))),
                role,
                pad_id=pad_id,
                device=device,
                progress=bar.update,
            )
            save_arrays(path, {"vectors": part})
    return vectors
