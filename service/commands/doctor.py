"""`longtail doctor`: what this machine has, and what computes a model's encoder fastest on it."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.service.commands.options import JsonOption, print_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from longtail.models.encoders.trial import Failure, Trial, TriedEncoder

_GIB = 2**30
_WORTH_SAYING = 1.2
"""So many times as fast as the automatic choice, another way is named."""
_MAX_TOKENS = 64
"""Of a text of the packaged encoder, which no bundle says how to use."""


def doctor(
    registry: Annotated[
        Path | None,
        typer.Option(
            envvar="LONGTAIL_REGISTRY",
            help="Folder of a registry, whose model is tried; else the packaged encoder is.",
        ),
    ] = None,
    version: Annotated[str, typer.Option(help="A version's number, or 'current'.")] = "current",
    seconds: Annotated[
        float, typer.Option(min=0.01, help="For each of the two measurements of a precision.")
    ] = 1.0,
    as_json: JsonOption = False,
) -> None:
    """Say what this machine has, and how fast an encoder is on it in each precision."""
    from longtail.models.encoders.trial import automatic_precision, try_precisions

    machine = _machine()
    if not as_json:
        print(_described(machine))
    encoder = _encoder_of(registry, version)
    if encoder is None:
        found, advice = [], ["This model has no encoder: nothing of it depends on the precision."]
    else:
        found = list(try_precisions(encoder, seconds=seconds))
        advice = advice_on(found, automatic_precision())
    if as_json:
        trials = [asdict(each) for each in found]
        print_json({"machine": machine, "precisions": trials, "advice": advice})
        return
    if found:
        print(_table(found, automatic_precision()))
    print("\n".join(advice))


def advice_on(found: Sequence[Trial | Failure], automatic: str) -> list[str]:
    """Return what to do, in sentences.

    Args:
        found: Of each precision.
        automatic: The precision that "auto" takes.
    """
    from longtail.models.encoders.trial import Trial

    tried = {each.precision: each for each in found if isinstance(each, Trial)}
    said = [f"LONGTAIL_PRECISION=auto takes {automatic} here."]
    if automatic not in tried:
        return said
    base = tried[automatic].texts_per_second
    for name, each in tried.items():
        ratio = each.texts_per_second / base
        if ratio >= _WORTH_SAYING:
            said.append(
                f"{name} is {ratio:.1f} times as fast, with vectors {each.distance:.2g} of their "
                f"length away from float32's: measure what that costs with 'longtail evaluate', "
                f"and set LONGTAIL_PRECISION={name}."
            )
    if automatic == "float32" and "bfloat16" in tried:
        ratio = tried["bfloat16"].texts_per_second / base
        if ratio < 1:
            said.append(
                f"This processor only imitates bfloat16: it is {1 / ratio:.1f} times as slow."
            )
    return said


def _machine() -> dict[str, Any]:
    import torch

    from longtail.models.processor import find_processor
    from longtail.service.process.memory import available_bytes

    processor, free = find_processor(), available_bytes()
    has_gpu = torch.cuda.is_available()
    return {
        "processor": processor.model,
        "instructions": list(processor.flags),
        "cores": processor.cores,
        "threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "free_memory_gib": None if free is None else round(free / _GIB, 1),
        "gpu": torch.cuda.get_device_name() if has_gpu else None,
        "torch": torch.__version__,
        "onednn": bool(torch.backends.mkldnn.is_available()),  # type: ignore[no-untyped-call]
    }


def _described(machine: dict[str, Any]) -> str:
    instructions = " ".join(machine["instructions"]) or "none of those that are looked for"
    free = "not told" if machine["free_memory_gib"] is None else f"{machine['free_memory_gib']} GiB"
    lines = [
        f"Processor     {machine['processor'] or 'not told'}",
        f"Instructions  {instructions}",
        f"Cores         {machine['cores']}, of which PyTorch takes {machine['threads']}",
        f"Free memory   {free}",
        f"GPU           {machine['gpu'] or 'none that PyTorch sees'}",
        f"PyTorch       {machine['torch']}, {'with' if machine['onednn'] else 'without'} oneDNN",
    ]
    load = machine["load"]
    if load is not None and load > machine["cores"] / 2:
        lines.append(f"Load          {load}: other programs run, so the times below are too long")
    return "\n".join([*lines, ""])


def _table(found: Sequence[Trial | Failure], automatic: str) -> str:
    from longtail.models.encoders.trial import Trial

    lines = [f"{'':14}{'one short text':>15}{'texts a second':>16}{'distance':>12}   computed"]
    for each in found:
        name = f"{each.precision}{' *' if each.precision == automatic else ''}"
        if isinstance(each, Trial):
            lines.append(
                f"{name:14}{each.short_text_ms:12.1f} ms{each.texts_per_second:16,.0f}"
                f"{each.distance:12.1g}   {each.backend}"
            )
        else:
            lines.append(f"{name:14}{each.reason}")
    return "\n".join([*lines, ""])


def _encoder_of(registry: Path | None, version: str) -> TriedEncoder | None:
    """Return the encoder to try; None where the model has none."""
    from longtail.models.encoders.dual_encoder import DualEncoder
    from longtail.models.encoders.pretrained import (
        PACKAGED,
        find_encoder,
        load_tokenizer,
        load_transformer,
    )
    from longtail.models.encoders.tokens import tokenize_texts
    from longtail.models.encoders.trial import TriedEncoder
    from longtail.service.versions.warmup import DEFAULT_TEXTS

    if registry is None:
        folder = find_encoder(PACKAGED).folder
        tokenizer = load_tokenizer(folder)
        return TriedEncoder(
            lambda: DualEncoder(load_transformer(folder)).eval(),
            folder,
            tokenize_texts(tokenizer, _lengthened(DEFAULT_TEXTS), _MAX_TOKENS),
            int(tokenizer.pad_token_id or 0),
        )
    from longtail.models.bundle.registry import Registry
    from longtail.models.bundle.warmup_texts import read_probes
    from longtail.models.parts.dense_storage import read_dual_encoder

    bundle = Registry(registry).open(version)
    said = bundle.manifest.encoder
    if said is None:
        return None
    tokenizer = load_tokenizer(bundle.encoder_folder)
    texts = read_probes(bundle) or _lengthened(DEFAULT_TEXTS)
    return TriedEncoder(
        lambda: read_dual_encoder(bundle),
        bundle.encoder_folder,
        tokenize_texts(tokenizer, texts, said.max_tokens, said.document_prefix),
        int(tokenizer.pad_token_id or 0),
    )


def _lengthened(texts: Sequence[str]) -> list[str]:
    """Return the texts, and longer ones made of several of them."""
    pairs = [f"{text} {texts[i - 1]}" for i, text in enumerate(texts)]
    return [*texts, *pairs, *(f"{pair} {pairs[i - 2]}" for i, pair in enumerate(pairs))]
