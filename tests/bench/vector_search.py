"""What a text costs with an encoder that is not fine-tuned: its vector, and the nearest documents.

    python tests/bench/vector_search.py
    python tests/bench/vector_search.py --sizes 100000 1000000 10000000 --rounds 5

Documents are made-up vectors around centres, as many as a twentieth of them; above
`--exact-up-to` they are divided among clusters, as in training. Encoder and search are timed in
turn, for one text and for 32, in milliseconds of the fastest round; the ratio is that of both
together to the encoder alone.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from joblib import cpu_count
from machine import begin
from recording import Table, add_json_option, keep

from longtail.models.encoders.dual_encoder import DualEncoder, encode_all
from longtail.models.encoders.families import VectorHead
from longtail.models.encoders.pretrained import find_encoder, load_tokenizer, load_transformer
from longtail.models.encoders.tokens import tokenize_texts
from longtail.models.memory.vectors import ByteVectors, Clusters
from longtail.training.memory.vectors import EXACT_UP_TO, clustered
from longtail.training.neural.document_vectors import inference_copy
from longtail.training.runtime.distributed import find_machine

_NUM_NEIGHBOURS, _PART = 40, 2**16
_WORDS = "the duties on imports of olive oil from a member state and their payment "


def documents(size: int, dim: int, rng: np.random.Generator) -> ByteVectors:
    """Return made-up vectors around centres."""
    centres = rng.normal(size=(max(20, size // 20), dim)).astype(np.float32)
    parts = []
    for start in range(0, size, _PART):
        num = min(_PART, size - start)
        around = 0.7 * rng.standard_normal((num, dim), dtype=np.float32)
        around += centres[rng.integers(len(centres), size=num)]
        parts.append(ByteVectors.rounded(around))
    return ByteVectors.joined(parts)


def milliseconds(act: Callable[[], object]) -> float:
    """Return how long something takes."""
    begun = time.perf_counter()
    act()
    return 1000 * (time.perf_counter() - begun)


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--exact-up-to", type=int, default=EXACT_UP_TO)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=10)
    add_json_option(parser)
    args = begin(parser)
    source, machine = find_encoder("packaged"), find_machine("auto")
    tokenizer = load_tokenizer(source.folder)
    head = VectorHead("mean", "mean", "identity", True)
    encoder = inference_copy(DualEncoder(load_transformer(source.folder), head), machine)
    table = Table({"documents": ",", "texts": "", "encoder, ms": ".2f", "search, ms": ".2f",
                   "ratio": ".2f", "recall": ".4f", "MiB": ".0f"})  # fmt: skip
    print(f"{machine.precision}, {torch.get_num_threads()} threads, {args.tokens} tokens a text")
    for size in args.sizes:
        rng = np.random.default_rng(0)
        vectors, clusters = documents(size, encoder.dim, rng), None
        if size > args.exact_up_to:
            order, clusters = clustered(vectors)
            vectors = vectors.take(order)
        for num_texts in (1, 32):
            tokens = tokenize_texts(tokenizer, [_WORDS * 40] * num_texts, args.tokens)
            queries = documents(num_texts, encoder.dim, rng)

            def search(
                queries: ByteVectors = queries,
                vectors: ByteVectors = vectors,
                clusters: Clusters | None = clusters,
            ) -> object:
                among = vectors if clusters is None else clusters
                given = () if clusters is None else (vectors,)
                return among.nearest(*given, queries, _NUM_NEIGHBOURS, num_threads=cpu_count())

            times = [
                (milliseconds(lambda t=tokens: encode_all(encoder, t, "document", pad_id=0)),
                 milliseconds(search))
                for _ in range(args.rounds)
            ]  # fmt: skip
            encode_ms, search_ms = np.min(times, axis=0)
            table.add(
                size, num_texts, encode_ms, search_ms, (encode_ms + search_ms) / encode_ms,
                1.0 if clusters is None else clusters.recall, vectors.bytes.nbytes / 2**20,
            )  # fmt: skip
    keep(args.json, {"search": table})


if __name__ == "__main__":
    main()
