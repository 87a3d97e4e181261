"""A cross-encoder on this machine: a sequence classifier of Hugging Face, by its folder."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForSequenceClassification, PreTrainedModel

from longtail.ext.review.reviewer import ReviewError
from longtail.models.encoders.families import num_positions
from longtail.models.encoders.pretrained import find_encoder, load_tokenizer
from longtail.models.errors import ConfigError, LongtailError
from longtail.models.files.durable import read_json

_MAX_TOKENS = 512
_BATCH = 8
"""Pairs computed together; between two batches the thread looks whether anybody still waits."""


class CrossEncoder:
    """Scores pairs of text and candidate on a thread of its own."""

    def __init__(self, address: str, model: str, key: str) -> None:  # noqa: ARG002  # as others
        """Load the model in the folder `address`; no code from there is run."""
        folder = Path(address)
        if not folder.is_dir():
            raise ConfigError(f"cross-encoder {address!r}: expected a folder on this machine")
        self.name = f"cross-encoder {find_encoder(address).sha256[:12]}"
        try:
            _check_classes(folder)  # first: a configuration makes objects of all classes
            self._tokenizer = load_tokenizer(folder)
            self._model = _load(folder)
        except Exception as error:  # each library has its own
            if isinstance(error, LongtailError):
                raise
            told = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:200]}"
            raise ConfigError(
                f"cross-encoder in {address!r}: can't be loaded ({told}); expected the files of "
                "save_pretrained of a sequence classifier that transformers knows"
            ) from error
        self.reads_keywords = bool(getattr(self._model.config, "reads_keywords", False))
        most = self._tokenizer.model_max_length  # as trained, where its files say it
        self._max_tokens = min(_MAX_TOKENS, num_positions(self._model), most)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="review")

    async def scores(self, text: str, candidates: Sequence[str]) -> list[float]:
        """Return the logit of "fits" for each candidate (see `Reviewer.scores`)."""
        given_up = Event()
        try:
            work = self._thread.submit(self._scores, text, candidates, given_up)
            return await asyncio.wrap_future(work)
        finally:
            given_up.set()

    async def close(self) -> None:
        """End the thread after the batch that it computes."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    @torch.inference_mode()
    def _scores(self, text: str, candidates: Sequence[str], given_up: Event) -> list[float]:
        found: list[float] = []
        for start in range(0, len(candidates), _BATCH):
            if given_up.is_set():
                raise ReviewError("nobody waits for these scores any more")
            part = [*candidates[start : start + _BATCH]]
            pairs = self._tokenizer(
                [text] * len(part), part, truncation="longest_first", padding=True,
                max_length=self._max_tokens, return_tensors="pt",
            )  # fmt: skip
            logits = self._model(**pairs).logits.float()  # (pair, 1) or (pair, 2)
            found += (logits[:, -1] - (logits[:, 0] if logits.shape[1] > 1 else 0)).tolist()
        return found


def _check_classes(folder: Path) -> None:
    said = read_json(folder / "config.json")
    num_labels = max(said.get("num_labels") or 0, len(said.get("id2label") or ())) or 2
    if num_labels not in {1, 2}:
        raise ConfigError(
            f"cross-encoder in {str(folder)!r}: it has {num_labels} classes; expected one "
            "score, or two classes of which the second means that the label fits"
        )


def _load(folder: Path) -> PreTrainedModel:
    safely: Any = {"local_files_only": True, "trust_remote_code": False}
    config = AutoConfig.from_pretrained(folder, **safely)
    config._attn_implementation = None  # else a file could name a package of native code
    model: PreTrainedModel
    model, found = AutoModelForSequenceClassification.from_pretrained(
        folder, **safely, config=config, use_safetensors=True, dtype=torch.float32,
        output_loading_info=True,
    )  # fmt: skip
    if missing := found["missing_keys"]:
        raise ConfigError(
            f"cross-encoder in {str(folder)!r}: weights {sorted(missing)[:3]} are missing; "
            "expected a model that was trained to classify pairs of texts, not a bare encoder"
        )
    if not all(torch.isfinite(weights).all() for weights in model.parameters()):
        raise ConfigError(f"cross-encoder in {str(folder)!r}: weights are not finite; train again")
    model.train(mode=False)
    return model
