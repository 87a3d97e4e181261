"""Vectors of documents by the trained encoder, in parts that survive a kill."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from jaxtyping import Float32
from safetensors.numpy import load_file
from tqdm import tqdm

from models.encoders.dual_encoder import DualEncoder, encode_all
from models.encoders.tokens import TokenizedTexts
from training.runtime.checkpoints import save_arrays

_PART_SIZE = 2**14  # documents whose vectors lie in one file


def encode_documents(
    encoder: DualEncoder, documents: TokenizedTexts, *, pad_id: int, device: str, folder: Path
) -> Float32[np.ndarray, "document dim"]:
    """Return phi_doc of the training documents; parts that lie in the folder are not made again.

    Args:
        encoder: The trained one.
        documents: As tokens.
        pad_id: The tokenizer's padding id.
        device: Where the encoder is.
        folder: For the parts.
    """
    folder.mkdir(parents=True, exist_ok=True)
    vectors = np.empty((len(documents), encoder.dim), dtype=np.float32)
    with tqdm(total=len(documents), desc="vectors", unit="doc", mininterval=1.0) as bar:
        for start in range(0, len(documents), _PART_SIZE):
            part = vectors[start : start + _PART_SIZE]
            path = folder / f"documents-{start:08d}.safetensors"
            if path.exists():
                part[:] = load_file(path)["vectors"]
                bar.update(len(part))
                continue
            part[:] = encode_all(
                encoder,
                documents.take(range(start, start + len(part))),
                "document",
                pad_id=pad_id,
                device=device,
                progress=bar.update,
            )
            save_arrays(path, {"vectors": part})
    return vectors
