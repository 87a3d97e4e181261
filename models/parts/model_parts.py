"""The parts of a trained model, and how each is stored in a bundle.

labels.jsonl               the catalogue
sparse.safetensors         CSR weights by feature; bias, labels, idf
sparse.json                vocabulary and languages

Of each other scorer but `retrieval`, where the bundle has it (see `longtail.models.kinds`):

SCORER.safetensors         its arrays, such as counts of the words of label names, tf-idf of the
                           documents that `neighbours` remembers, rows of labels, or a label tree
SCORER.json, .jsonl        its texts, such as all names of all labels

Of each part that a dev split or a command has fitted (see `longtail.models.fitted.registry`):

PART.json                  such as familiar.json: what documents are like

probes.jsonl               texts to try the model on (`longtail.models.bundle.trained_on`), where
it brings some

The dense half, which a model may lack:

encoder/                   the transformer and its tokenizer, as Hugging Face saves them
dual_encoder.safetensors   both poolers, log_scale, score_bias
retrieval.safetensors      label_vectors: phi_label of every label's pseudo description
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from longtail.models.bundle.bundle import ENCODER_FOLDER
from longtail.models.bundle.manifest import Calibration, Manifest, RarityBlend
from longtail.models.labels.catalogue import LabelCatalogue
from longtail.models.names import (
    CLASSIFIER,
    DENSE_NEIGHBOURS,
    ENSEMBLE,
    FAST,
    HYBRID,
    HYBRID_OF,
    LINEAR,
    RETRIEVAL,
    SPARSE,
    WORD_NEIGHBOURS,
    WORD_VECTORS,
)
from longtail.models.scorers.sparse import SparseModel

if TYPE_CHECKING:  # brings PyTorch, which a model without a dense half does not need
    from longtail.models.parts.dense_parts import DenseParts

_DUAL_ENCODER_FILE = "dual_encoder.safetensors"
RETRIEVAL_FILE = "retrieval.safetensors"
_GPU_WORKING_BYTES = 2**30  # products and FAISS's 256 MiB, and activations of 16384 tokens
_GPU_TREE_BYTES = 2**30  # log-probabilities of all leaves, of a part of a batch
SPARSE_FILE = "sparse.safetensors"
_VOCABULARY_FILE = "sparse.json"
_TRANSFORMER_PREFIX = "transformer."


@dataclass(frozen=True, slots=True)
class ModelParts:
    """Everything that scoring needs.

    Attributes:
        catalogue: The labels.
        sparse: The sparse model; its features are what most scorers read.
        dense: The dense half; None if the run trained none.
        models: What each other scorer scores by, by its name (see `longtail.models.kinds`).
        has_hybrid: Whether `hybrid` is among the scorers, where there is what it is made of.
        calibrations: What makes log-odds of the scores of a scorer.
        blends: The scorers that blend others by rarity, by name.
        fitted: What a dev split or a command has fitted, by the name of the part (see
            `longtail.models.fitted.part.FittedPart.of`).
        is_confidential: Whether words of the training documents are not shown.
        num_training_documents: Number of training documents, in a bundle that was read; the aim
            "propensity" needs it.
    """

    catalogue: LabelCatalogue
    sparse: SparseModel
    dense: DenseParts | None
    models: Mapping[str, Any] = field(default_factory=dict)
    has_hybrid: bool = False
    calibrations: Mapping[str, Calibration] = field(default_factory=dict)
    blends: Mapping[str, RarityBlend] = field(default_factory=dict)
    fitted: Mapping[str, Any] = field(default_factory=dict)
    is_confidential: bool = False
    num_training_documents: int | None = None

    @property
    def scorers(self) -> tuple[str, ...]:
        """Names of the scorers that these parts make."""
        there = {SPARSE, *self.models, *self.blends}
        if self.dense is None:
            there -= {CLASSIFIER, LINEAR}
        else:
            there.add(RETRIEVAL)
        if WORD_VECTORS not in there:
            there.discard(WORD_NEIGHBOURS)
        if self.has_hybrid and CLASSIFIER in there:
            there.add(HYBRID)
        first = (*HYBRID_OF, HYBRID, LINEAR, DENSE_NEIGHBOURS, SPARSE)
        order = (*first, *self.models, FAST, ENSEMBLE)
        return tuple(name for name in dict.fromkeys(order) if name in there)


def gpu_bytes(manifest: Manifest) -> int:
    """Return about how much memory of a GPU a model takes there, in bytes; 0 without a dense half.

    The label vectors and the label tree, an eighth more for padded columns and copies; the encoder,
    in float32; and as much as batches are computed in. The sparse model stays in main memory.
    Estimated, not measured.
    """
    dense = ("dual_encoder.", *(f"{name}.safetensors" for name in (RETRIEVAL, CLASSIFIER, LINEAR)))
    begins = (f"{ENCODER_FOLDER}/", *dense)
    sizes = [info.size_bytes for name, info in manifest.files.items() if name.startswith(begins)]
    working = _GPU_WORKING_BYTES + _GPU_TREE_BYTES * (manifest.linear_correction == "tree")
    return sum(sizes) * 9 // 8 + working if sizes else 0
