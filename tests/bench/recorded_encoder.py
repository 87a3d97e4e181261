"""What recording the encoder saves, and packed weights, and attention for short texts: ratios.

    OMP_NUM_THREADS=1 ONEDNN_PRIMITIVE_CACHE_CAPACITY=64 python tests/bench/recorded_encoder.py

The packaged encoder in bfloat16 reads batches of several shapes on one core: step by step from
Python, recorded, recorded with weights in the order of oneDNN, and with attention for short texts
besides. All take turns, and their best times count. That the first three answer with the same bits
is checked; the last stands with how much further from float32's its vectors are. Last come single
texts, each as long as no other, with a cache of kernels as small as the service has it.
"""

from __future__ import annotations

import copy
import random
import time

import torch

from models import traced_encoder
from models.encoder import find_encoder, load_transformer

SHAPES = ((1, 24), (1, 44), (4, 44), (23, 44), (64, 44), (8, 128), (4, 256))
SECONDS = 3.0


@torch.inference_mode()
def main() -> None:
    """Print the table.

    Raises:
        SystemExit: oneDNN has no bfloat16 here.
    """
    torch.set_num_threads(1)
    transformer = load_transformer(find_encoder("packaged").folder).to(torch.bfloat16)
    if not traced_encoder._can_pack(transformer):
        raise SystemExit("oneDNN has no bfloat16 here")
    exact = copy.deepcopy(transformer).float()
    ways = (
        transformer,
        *(traced_encoder._traced(transformer, way) for way in reversed(traced_encoder._WAYS)),
    )
    print("| texts x tokens | step by step, ms | recorded | packed weights | short attention | "
          "saved by it | distance from float32 |")  # fmt: skip
    print("|---:" * 7 + "|")
    for num_texts, width in SHAPES:
        ids = 2 + torch.arange(num_texts * width).reshape(num_texts, width) % 97
        mask = torch.ones_like(ids)

        answers = [way(input_ids=ids, attention_mask=mask).last_hidden_state for way in ways]
        assert all(torch.equal(answers[0], answer) for answer in answers[1:3])
        wanted = exact(input_ids=ids, attention_mask=mask).last_hidden_state
        usual, short = ((each.float() - wanted).norm().item() for each in answers[2:])
        best = [float("inf")] * len(ways)
        end = time.perf_counter() + SECONDS
        while time.perf_counter() < end:
            for i, way in enumerate(ways):
                started = time.perf_counter()
                way(input_ids=ids, attention_mask=mask)
                best[i] = min(best[i], time.perf_counter() - started)
        times = " | ".join(f"{1e3 * each:.2f}" for each in best)
        saved = f"{100 * (1 - best[3] / best[2]):.0f} %"
        print(f"| {num_texts} x {width} | {times} | {saved} | {short / usual:.2f} times |")

    widths = list(range(12, 65))
    random.Random(7).shuffle(widths)  # noqa: S311
    best = [float("inf")] * len(ways)
    for _ in range(10):
        for i, way in enumerate(ways):
            started = time.perf_counter()
            for width in widths:
                ids = torch.full((1, width), 5)
                way(input_ids=ids, attention_mask=torch.ones_like(ids))
            best[i] = min(best[i], (time.perf_counter() - started) / len(widths))
    times = " | ".join(f"{1e3 * each:.2f}" for each in best)
    print(f"| 1 x 12 to 64 | {times} | {100 * (1 - best[3] / best[2]):.0f} % | |")


if __name__ == "__main__":
    main()
