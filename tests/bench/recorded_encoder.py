"""What recording the encoder and packing its weights save, on one core, as ratios in one run.

    OMP_NUM_THREADS=1 python tests/bench/recorded_encoder.py

The packaged encoder in bfloat16 reads batches of several shapes three ways: step by step from
Python, recorded, and recorded with weights in the order of oneDNN. All three take turns, and their
best times count; that they answer with the same bits is checked.
"""

from __future__ import annotations

import time
from unittest.mock import patch

import torch

from models import traced_encoder
from models.encoder import find_encoder, load_transformer
from models.traced_encoder import trace_transformer

SHAPES = ((1, 24), (1, 44), (4, 44), (23, 44), (64, 44), (8, 128))
SECONDS = 3.0


@torch.inference_mode()
def main() -> None:
    """Print the table.

    Raises:
        SystemExit: The encoder can't be recorded here, or oneDNN has no bfloat16.
    """
    torch.set_num_threads(1)
    transformer = load_transformer(find_encoder("packaged").folder).to(torch.bfloat16)
    with patch.object(traced_encoder, "_can_pack", lambda transformer: False):
        recorded = trace_transformer(transformer)
    packed = trace_transformer(transformer)
    if recorded is None or packed is None or not packed.is_packed:
        raise SystemExit("the encoder can't be recorded, or oneDNN has no bfloat16 here")
    print("| texts x tokens | step by step, ms | recorded | and packed | saved by packing |")
    print("|---:|---:|---:|---:|---:|")
    for num_texts, width in SHAPES:
        ids = 2 + torch.arange(num_texts * width).reshape(num_texts, width) % 97
        mask = torch.ones_like(ids)

        ways = (transformer, recorded, packed)
        answers = [way(input_ids=ids, attention_mask=mask).last_hidden_state for way in ways]
        assert all(torch.equal(answers[0], answer) for answer in answers[1:])
        best = [float("inf")] * len(ways)
        end = time.perf_counter() + SECONDS
        while time.perf_counter() < end:
            for i, way in enumerate(ways):
                started = time.perf_counter()
                way(input_ids=ids, attention_mask=mask)
                best[i] = min(best[i], time.perf_counter() - started)
        plain, replayed, ordered = (1e3 * each for each in best)
        saved = f"{100 * (1 - ordered / replayed):.0f} %"
        print(f"| {num_texts} x {width} | {plain:.2f} | {replayed:.2f} | {ordered:.2f} | {saved} |")


if __name__ == "__main__":
    main()
