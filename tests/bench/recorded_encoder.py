"""What each backend of the encoder saves, in one run: milliseconds of a core, and ratios.

    OMP_NUM_THREADS=1 ONEDNN_PRIMITIVE_CACHE_CAPACITY=128 python tests/bench/recorded_encoder.py

The packaged encoder reads batches of several shapes on one core: as Hugging Face computes it, and
without padding, for the vectors of documents. Both take turns, and their best times count. How much
further from float32's the vectors of the second are stands beside. Then come real titles, one by
one, by two and by four, and in batches of like and of any length, with a cache of kernels as small
as the service has it.
"""

from __future__ import annotations

import argparse
import copy
import random
import time
from collections.abc import Callable, Sequence

import torch
from machine import begin
from recording import Table, add_json_option, keep
from service_throughput import read_texts
from torch import Tensor, nn

from longtail.models.encoders.cpu.torch_internals import can_pack
from longtail.models.encoders.cpu.unpadded import UnpaddedBert
from longtail.models.encoders.pretrained import find_encoder, load_tokenizer, load_transformer
from longtail.models.encoders.tokens import tokenize_texts

SHAPES = ((1, 24), (1, 44), (4, 44), (23, 44), (64, 44), (8, 128), (4, 256))
SECONDS = 2.0
NUM_TOKENS = 1000  # of the batches of titles

Batch = dict[str, Tensor]
Backend = Callable[[Batch], Tensor]


@torch.inference_mode()
def main() -> None:
    """Print the table.

    Raises:
        SystemExit: oneDNN does not have the precision here.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--precision", choices=("bfloat16", "float32"), default="bfloat16")
    add_json_option(parser)
    chosen = begin(parser)
    dtype: torch.dtype = getattr(torch, chosen.precision)
    torch.set_num_threads(1)
    source = find_encoder("packaged")
    transformer = load_transformer(source.folder).to(dtype)
    if not can_pack(dtype):
        raise SystemExit(f"oneDNN has no {chosen.precision} here")
    backends = [first_of(transformer), unpadded(transformer)]
    names = ["Hugging Face", "no padding"]
    exact = first_of(copy.deepcopy(transformer).float())

    columns = {f"{name}, ms": ".2f" for name in names}
    table = Table(
        {"texts x tokens": ""} | columns | {"saved by the last, %": ".0f", "its distance": ".2f"}
    )
    for num_texts, width in SHAPES:
        ids = 2 + torch.arange(num_texts * width).reshape(num_texts, width) % 97
        batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        answers = [backend(batch) for backend in backends]
        expected = exact(batch)
        usual, last = ((answers[i].float() - expected).norm().item() for i in (0, -1))
        distance = last / usual if usual else 0.0
        table.add(f"{num_texts} x {width}", *row_of(backends, [batch]), distance)

    lengths = tokenize_texts(load_tokenizer(source.folder), read_texts("titles", 2000), 64).lengths
    titles = sorted(lengths.tolist())
    rng = random.Random(7)  # noqa: S311
    of_size = {
        name: [batch_of(rng.choices(titles, k=size)) for _ in range(count)]
        for name, size, count in (("1 title", 1, 60), ("2 titles", 2, 40), ("4 titles", 4, 20))
    }
    size = NUM_TOKENS * len(titles) // sum(titles)
    starts = [rng.randrange(len(titles) - size) for _ in range(6)]
    of_size[f"{size} titles of like length"] = [batch_of(titles[i : i + size]) for i in starts]
    of_size[f"{size} titles"] = [batch_of(sorted(rng.choices(titles, k=size))) for _ in range(6)]
    for name, batches in of_size.items():
        table.add(name, *row_of(backends, batches), None)
    keep(chosen.json, {"batches": table}, seeds=[7])


def first_of(transformer: nn.Module) -> Backend:
    """Return what makes the last layer of first tokens, of that of all."""
    return lambda batch: transformer(**batch).last_hidden_state[:, 0]


def unpadded(transformer: nn.Module) -> Backend:
    """Return what makes it without padding."""
    made = UnpaddedBert(transformer)
    return lambda batch: made.first_states(**batch)


def batch_of(lengths: Sequence[int]) -> Batch:
    """Return texts of these lengths."""
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    return {"input_ids": 5 * mask, "attention_mask": mask}


def row_of(backends: Sequence[Backend], batches: Sequence[Batch]) -> list[float]:
    """Return a row: milliseconds a batch of each backend, and what the last saves of the others."""
    best = [float("inf")] * len(backends)
    end = time.perf_counter() + SECONDS
    turns = 0
    while turns < 3 or time.perf_counter() < end:
        turns += 1
        for i, backend in enumerate(backends):
            started = time.perf_counter()
            for batch in batches:
                backend(batch)
            best[i] = min(best[i], (time.perf_counter() - started) / len(batches))
    return [*(1e3 * each for each in best), 100 * (1 - best[-1] / min(best[:-1]))]


if __name__ == "__main__":
    main()
