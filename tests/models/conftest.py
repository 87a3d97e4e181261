"""A tiny random model, the bundle that it makes, and ways to break the bundle."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import BertProcessing
from transformers import BertConfig, BertModel, TokenizersBackend

from longtail.models.bundle.bundle import open_bundle
from longtail.models.bundle.manifest import EncoderInfo, Manifest, RarityBlend, digest_of
from longtail.models.encoders.dual_encoder import DualEncoder
from longtail.models.kinds.storage import write_parts
from longtail.models.label_tree.tree import LabelTree, one_sided_biases
from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.models.parts.dense_parts import DenseParts
from longtail.models.parts.model_parts import ModelParts
from longtail.models.scorers.linear import LinearModel, LinearScorer
from longtail.models.scorers.sparse import SparseModel
from longtail.models.scorers.tfidf import TfidfModel

WORDS = ("river", "fish", "law", "trade", "steel", "milk", "tax", "court", "port", "grain")
DIM = 16
MAX_TOKENS = 8
UNTRAINED = (2, 5)
"""Labels without training documents: only `retrieval` can score them."""
LABELS = tuple(
    Label(f"L{i}", f"{word} policy", training_count=0 if i in UNTRAINED else i + 1)
    for i, word in enumerate(WORDS[:7])
)
Change = Callable[[dict[str, Any]], object]


@pytest.fixture(scope="session")
def constant_blend():
    """Makes blends whose weights are the same however often a label was seen."""

    def make(weights: dict[str, float]) -> RarityBlend:
        return RarityBlend(
            counts=(0,),
            intercepts=(0.0,),
            weights={name: (weight,) for name, weight in weights.items()},
            floors=dict.fromkeys(weights, -8.0),
        )

    return make


@pytest.fixture(scope="session")
def tokenizer():
    """A word-piece tokenizer of ten words and a few pieces."""
    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    pad, unknown, start, end, mask = special
    tokens = [*special, *WORDS, "##s", "and", "the"]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    backend = Tokenizer(WordPiece(vocabulary, unk_token=unknown))
    backend.normalizer = BertNormalizer()
    backend.pre_tokenizer = BertPreTokenizer()
    backend.post_processor = BertProcessing((end, vocabulary[end]), (start, vocabulary[start]))
    return TokenizersBackend(
        tokenizer_object=backend, pad_token=pad, unk_token=unknown, cls_token=start, sep_token=end,
        mask_token=mask,
    )  # fmt: skip


@pytest.fixture(scope="session")
def dual_encoder(tokenizer):
    """A random transformer of two layers; poolers, scale and bias are random too."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=DIM, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=32,
    )  # fmt: skip
    encoder = DualEncoder(BertModel(config))
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return encoder.eval()


@pytest.fixture(scope="session")
def parts(tokenizer, dual_encoder):
    """All parts of a model with random weights."""
    rng = np.random.default_rng(0)
    covered = np.array([i for i in range(len(LABELS)) if i not in UNTRAINED], dtype=np.int64)

    def random(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(np.float32)

    weights = random(len(covered), len(WORDS)) * (rng.random((len(covered), len(WORDS))) < 0.5)
    tfidf = TfidfModel(sorted(WORDS), 1 + rng.random(len(WORDS)).astype(np.float32))
    return ModelParts(
        catalogue=LabelCatalogue(LABELS),
        sparse=SparseModel.of_rows(tfidf, csr_array(weights), random(len(covered)), covered),
        dense=DenseParts(
            encoder=dual_encoder, tokenizer=tokenizer, max_tokens=MAX_TOKENS,
            label_vectors=random(len(LABELS), DIM),
        ),
        models={
            "classifier": LinearScorer(
                LinearModel(random(len(covered), DIM), random(len(covered)), covered), "none",
            ),
            "linear": LinearScorer(
                LinearModel(random(len(covered), DIM), random(len(covered)), covered), "tree",
                random_tree(len(LABELS), DIM, rng),
            ),
        },
    )  # fmt: skip


def random_tree(num_labels: int, dim: int, rng: np.random.Generator) -> LabelTree:
    """Return a label tree on two random directions; its last leaf is padding."""
    label_of_leaf = np.append(rng.permutation(num_labels), -1)
    forced = one_sided_biases((label_of_leaf >= 0).astype(np.int64))
    shapes = {"mean": (dim,), "components": (2, dim), "weights": (num_labels, 2)}
    arrays = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    biases = rng.normal(size=num_labels).astype(np.float32)
    return LabelTree.from_arrays(
        arrays
        | {"biases": np.where(np.isinf(forced), forced, biases), "label_of_leaf": label_of_leaf}
    )


@pytest.fixture(scope="session")
def dense(parts):
    """Their dense half."""
    assert parts.dense is not None
    return parts.dense


@pytest.fixture(scope="session")
def sparse_parts(parts):
    """The sparse model alone."""
    return replace(parts, dense=None)


@pytest.fixture(scope="session")
def manifest():
    """What the tiny bundle says of itself before it is written."""
    return Manifest(
        label_count=len(LABELS), training_document_count=20,
        encoder=EncoderInfo("tiny", DIM, MAX_TOKENS, "0" * 64),
        scorers=("retrieval", "classifier", "linear", "sparse"), default_scorer="retrieval",
        training={"seed": 0, "rate": 1e-5}, data_fingerprint="f" * 64,
        metrics={"dev": {"retrieval": {"all": {"P@1": 0.5}}}}, linear_correction="tree",
        longtail_version=version("longtail"),
    )  # fmt: skip


@pytest.fixture(scope="session")
def sparse_manifest(manifest):
    """What a bundle of the sparse model alone says of itself."""
    return replace(
        manifest, encoder=None, scorers=("sparse",), default_scorer="sparse", metrics={},
        linear_correction=None,
    )  # fmt: skip


@pytest.fixture(scope="session")
def written_bundle(parts, manifest, tmp_path_factory):
    """A bundle that no test changes."""
    folder = tmp_path_factory.mktemp("written")
    write_parts(folder / "tiny", parts, manifest, folder / "scratch")
    return folder / "tiny"


@pytest.fixture
def bundle_folder(written_bundle, tmp_path):
    """A copy of the bundle, to be broken."""
    return shutil.copytree(written_bundle, tmp_path / "tiny")


@pytest.fixture
def bundle(written_bundle):
    """The bundle, opened."""
    return open_bundle(written_bundle)


@pytest.fixture
def sparse_bundle(sparse_parts, sparse_manifest, tmp_path):
    """A bundle of the sparse model alone, written and opened."""
    write_parts(tmp_path / "sparse", sparse_parts, sparse_manifest, tmp_path / "scratch")
    return open_bundle(tmp_path / "sparse")


@pytest.fixture
def lie(bundle_folder):
    """Change the manifest of the copy, or of another, and give it the digest of what it says."""

    def change_manifest(change: Change, folder: Path = bundle_folder) -> Path:
        path = folder / "manifest.json"
        content = json.loads(path.read_text())
        change(content)
        content["digest"] = digest_of(content)
        path.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")
        return folder

    return change_manifest


@pytest.fixture
def as_on_gpu(monkeypatch):
    """Compute on the CPU by the code for GPUs: padded rows, PyTorch's sums, the tree as a whole."""
    for module in ("ranking.device_rows", "label_tree.corrected_top_k"):
        monkeypatch.setattr(f"longtail.models.{module}.has_kernels", lambda device: False)
    monkeypatch.setattr(LabelTree, "uses_kernels", False)
