"""What each way of running the encoder saves, in one run: milliseconds of a core, and ratios.

    OMP_NUM_THREADS=1 ONEDNN_PRIMITIVE_CACHE_CAPACITY=128 python tests/bench/recorded_encoder.py

The packaged encoder in bfloat16 reads batches of several shapes on one core: step by step from
Python; recorded; recorded with weights in the order of oneDNN; with attention for short texts
besides; and without padding, for the vectors of documents. All take turns, and their best times
count. That the first three answer with the same bits is checked; the last two stand with how much
further from float32's their vectors are (of first tokens, for the last). Then come real titles, one
by one, by two and by four, and in batches of like and of any length, with a cache of kernels as
small as the service has it.
"""

from __future__ import annotations

import copy
import random
import time
from collections.abc import Callable, Sequence

import torch
from service_throughput import read_texts
from torch import Tensor, nn

from models.encoders.cpu import traced as traced_encoder
from models.encoders.cpu.torch_internals import can_pack
from models.encoders.cpu.unpadded import UnpaddedBert
from models.encoders.pretrained import find_encoder, load_tokenizer, load_transformer
from models.encoders.tokens import tokenize_texts

SHAPES = ((1, 24), (1, 44), (4, 44), (23, 44), (64, 44), (8, 128), (4, 256))
SECONDS = 3.0
NUM_TOKENS = 1000  # of the batches of titles

Batch = dict[str, Tensor]
Way = Callable[[Batch], Tensor]


@torch.inference_mode()
def main() -> None:
    """Print the table.

    Raises:
        SystemExit: oneDNN has no bfloat16 here.
    """
    torch.set_num_threads(1)
    source = find_encoder("packaged")
    transformer = load_transformer(source.folder).to(torch.bfloat16)
    if not can_pack(torch.bfloat16):
        raise SystemExit("oneDNN has no bfloat16 here")
    recorded = [
        traced_encoder._traced(transformer, way)
        for way in reversed(traced_encoder._WAYS)
        if not way.is_unpadded
    ]
    ways = [*(first_of(each) for each in (transformer, *recorded)), unpadded(transformer)]
    exact = first_of(copy.deepcopy(transformer).float())

    print("| texts x tokens | step by step, ms | recorded | packed weights | short attention | "
          "no padding | saved by it | distance from float32 of the last two |")  # fmt: skip
    print("|---:" * 8 + "|")
    for num_texts, width in SHAPES:
        ids = 2 + torch.arange(num_texts * width).reshape(num_texts, width) % 97
        batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        answers = [way(batch) for way in ways]
        assert all(torch.equal(answers[0], answer) for answer in answers[1:3])
        wanted = exact(batch)
        usual, *others = ((each.float() - wanted).norm().item() for each in answers[2:])
        distances = ", ".join(f"{each / usual:.2f}" for each in others)
        print(f"| {num_texts} x {width} | {row_of(ways, [batch])} | {distances} |", flush=True)

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
        print(f"| {name} | {row_of(ways, batches)} | |", flush=True)


def first_of(transformer: nn.Module) -> Way:
    """Return what makes the last layer of first tokens, of that of all."""
    return lambda batch: transformer(**batch).last_hidden_state[:, 0]


def unpadded(transformer: nn.Module) -> Way:
    """Return what makes it without padding."""
    made = UnpaddedBert(transformer)
    return lambda batch: made.first_states(**batch)


def batch_of(lengths: Sequence[int]) -> Batch:
    """Return texts of these lengths."""
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    return {"input_ids": 5 * mask, "attention_mask": mask}


def row_of(ways: Sequence[Way], batches: Sequence[Batch]) -> str:
    """Return a row: milliseconds a batch of each way, and what the last saves of the others."""
    best = [float("inf")] * len(ways)
    end = time.perf_counter() + SECONDS
    turns = 0
    while turns < 3 or time.perf_counter() < end:
        turns += 1
        for i, way in enumerate(ways):
            started = time.perf_counter()
            for batch in batches:
                way(batch)
            best[i] = min(best[i], (time.perf_counter() - started) / len(batches))
    times = " | ".join(f"{1e3 * each:.2f}" for each in best)
    return f"{times} | {100 * (1 - best[-1] / min(best[:-1])):.0f} %"


if __name__ == "__main__":
    main()
