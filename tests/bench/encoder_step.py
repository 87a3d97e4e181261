"""What a training step of the dual encoder costs, and what dropout, padding and AdamW are of it.

    python tests/bench/encoder_step.py
    python tests/bench/encoder_step.py --documents 32 --tokens 64 --labels 256

A *step* encodes documents by their first token and labels by the mean of all, takes the loss'
gradient and changes the weights. *Documents* and *labels* are a pass and its gradient, of full
documents and of label texts of which a third is short, as names without keywords are. The ways are
taken in turn, and each row has the fastest of its rounds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from machine import begin
from recording import Table, add_json_option, keep
from torch import Tensor, nn

from longtail.models.encoders import dual_encoder
from longtail.models.encoders.dual_encoder import DualEncoder, Role
from longtail.models.encoders.pretrained import find_encoder, load_transformer
from longtail.models.encoders.tokens import TokenBatch
from longtail.training.neural.model import begin_training
from longtail.training.runtime.distributed import Machine, find_machine

LABEL_TOKENS, SHORT_TOKENS = 24, 8
FIRST_ID = 1000
"""Token ids from here on are words."""


def batch_of(lengths: Tensor) -> TokenBatch:
    """Return made-up texts of these lengths."""
    mask = (torch.arange(int(lengths.max())) < lengths[:, None]).long()
    ids = torch.randint(FIRST_ID, 20_000, mask.shape)
    return TokenBatch(ids * mask, mask)


class Padded(AbstractContextManager[None]):
    """Inside, the transformer's own pass is taken, with padding and its whole last layer."""

    def __enter__(self) -> None:
        self._can_pack = dual_encoder.can_pack
        dual_encoder.can_pack = lambda *_: False

    def __exit__(self, *_: object) -> None:
        dual_encoder.can_pack = self._can_pack


def seconds_of(act: Callable[[], object]) -> float:
    """Return how long something takes."""
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def gradient_pass(encoder: DualEncoder, batch: TokenBatch, role: Role, machine: Machine) -> None:
    """Compute the vectors of a batch and the gradient of something made of them."""
    encoder.zero_grad(set_to_none=True)
    with machine.autocast():
        loss = encoder(batch, role).float().square().sum()
    loss.backward()  # type: ignore[no-untyped-call]


def passes(args: argparse.Namespace, machine: Machine) -> Table:
    """Print and return the seconds of passes, with dropout, without, and without padding."""
    encoder = DualEncoder(load_transformer(find_encoder(args.encoder).folder))
    short = torch.rand(args.labels) < 1 / 3
    batches: dict[Role, TokenBatch] = {
        "document": batch_of(torch.full((args.documents,), args.tokens)),
        "label": batch_of(torch.where(short, SHORT_TOKENS, LABEL_TOKENS)),
    }
    ways: dict[str, tuple[bool, type[AbstractContextManager[None]]]] = {
        "the transformer's own pass": (True, Padded),
        "without dropout": (False, Padded),
        "without padding": (False, nullcontext),
    }
    best: dict[tuple[str, Role], float] = {}
    for _ in range(args.rounds):
        for way, (dropout, form) in ways.items():
            begin_training(encoder)
            if dropout:
                encoder.train()
            for role, batch in batches.items():
                with form():
                    found = seconds_of(
                        lambda b=batch, r=role: gradient_pass(encoder, b, r, machine)
                    )
                best[way, role] = min(found, best.get((way, role), found))
    table = Table({"pass and gradient": "", "documents, s": ".2f", "labels, s": ".2f",
                   "both, of the first": ".2f"})  # fmt: skip
    first = sum(best["the transformer's own pass", role] for role in batches)
    for way in ways:
        both = [best[way, role] for role in batches]
        table.add(way, *both, sum(both) / first)
    return table


def updates(args: argparse.Namespace) -> Table:
    """Print and return the milliseconds of a step of AdamW, weight by weight and in one pass."""
    transformer = load_transformer(find_encoder(args.encoder).folder)
    weights = [nn.Parameter(each.detach().clone()) for each in transformer.parameters()]
    for weight in weights:
        weight.grad = torch.randn_like(weight)
    table = Table({"AdamW": "", "ms": ".1f"})
    for name, fused in (("weight by weight", None), ("fused", True)):
        optimizer = torch.optim.AdamW(weights, lr=1e-9, fused=fused)
        optimizer.step()  # makes its state
        table.add(name, 1000 * min(seconds_of(optimizer.step) for _ in range(args.rounds)))
    return table


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--encoder", default="packaged")
    parser.add_argument("--documents", type=int, default=128, help="of a step")
    parser.add_argument("--tokens", type=int, default=128, help="of a document")
    parser.add_argument("--labels", type=int, default=512, help="of a step")
    parser.add_argument("--rounds", type=int, default=4)
    add_json_option(parser)
    args = begin(parser)
    torch.manual_seed(0)
    machine = find_machine("auto")
    print(f"{args.documents} documents of {args.tokens} tokens, {args.labels} labels, "
          f"{machine.precision}, {torch.get_num_threads()} threads")  # fmt: skip
    figures = {"passes": passes(args, machine), "updates": updates(args)}
    keep(args.json, figures)


if __name__ == "__main__":
    main()
