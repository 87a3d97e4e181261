"""The scorers `retrieval`, `classifier` and `linear`: rows of labels, scored by document vectors.

The vectors of `retrieval` are stored with the encoder (`longtail.models.parts.dense_storage`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from longtail.models.files.typed_json import json_forms
from longtail.models.kinds.placement import Placement
from longtail.models.kinds.scorer import Scorer, ScorerKind
from longtail.models.matrices import ArrayRule, check_arrays, check_rows
from longtail.models.names import RETRIEVAL, CorrectionName
from longtail.models.parts.model_parts import ModelParts
from longtail.models.scorers.sparse import SparseModel

if TYPE_CHECKING:  # brings PyTorch, which is loaded where a model has a dense half
    from longtail.models.scorers.linear import LinearScorer


_TREE = "tree_"
_RULES = {
    "weight": ArrayRule(("float32",), 2),
    "bias": ArrayRule(("float32",), 1),
    "labels": ArrayRule(("int64",), 1, least=0),
}


@dataclass(frozen=True, slots=True)
class _Stored:
    correction: CorrectionName


_, _read = json_forms(_Stored)


class _DenseKind(ScorerKind):
    """A scorer of document vectors."""

    needs_encoder = True

    def make(self, model: LinearScorer, parts: ModelParts, placement: Placement) -> Scorer:
        """Return the scorer with its index; PyTorch is loaded."""
        from longtail.models.kinds.vectors import ListingScorer, VectorScorer

        assert parts.dense is not None  # else there would be no model
        scorer = VectorScorer if parts.dense.is_tuned else ListingScorer
        return scorer(
            model, parts.catalogue, index_device=placement.index_device, index=placement.index
        )


class RetrievalKind(_DenseKind):
    """Inner products with the vectors of label texts, scaled and shifted as in training."""

    name = RETRIEVAL
    gives_logits = True
    compares_texts = True
    scores_new_labels = True

    def model_of(self, parts: ModelParts) -> LinearScorer | None:
        """Return the scaled label vectors."""
        if (dense := parts.dense) is None:
            return None
        from longtail.models.scorers.linear import LinearModel, LinearScorer

        scale = float(dense.encoder.log_scale.detach().exp())
        shift = float(dense.encoder.score_bias.detach())
        num_labels = len(dense.label_vectors)
        model = LinearModel(
            weight=np.float32(scale) * dense.label_vectors,
            bias=np.full(num_labels, shift, dtype=np.float32),
            labels=np.arange(num_labels, dtype=np.int64),
        )
        return LinearScorer(model, "none")


class RowsKind(_DenseKind):
    """Rows of some labels, which may be corrected: `classifier` and `linear`."""

    def __init__(self, name: str, *, gives_logits: bool) -> None:
        """Take the name, and the properties of the scores."""
        self.name = name
        self.gives_logits = gives_logits

    def model_of(self, parts: ModelParts) -> LinearScorer | None:
        """Return its rows, where there are vectors."""
        found: LinearScorer | None = None if parts.dense is None else parts.models.get(self.name)
        return found

    def arrays(self, model: LinearScorer) -> dict[str, np.ndarray]:
        """Return the rows, and the label tree that corrects them."""
        rows, tree = model.model, {} if model.tree is None else model.tree.to_arrays()
        found = {"weight": rows.weight, "bias": rows.bias, "labels": rows.labels}
        return found | {f"{_TREE}{name}": array for name, array in tree.items()}

    def texts(self, model: LinearScorer) -> dict[str, str]:
        """Return the name of the correction."""
        return {f"{self.name}.json": json.dumps({"correction": model.correction})}

    def read(
        self,
        arrays: Mapping[str, np.ndarray],
        texts: Mapping[str, str],
        sparse: SparseModel,
        num_labels: int,
    ) -> LinearScorer:
        """Return the rows and their correction."""
        from longtail.models.label_tree.tree import LabelTree
        from longtail.models.scorers.linear import LinearModel, LinearScorer

        del sparse
        rows = {name: x for name, x in arrays.items() if not name.startswith(_TREE)}
        tree = {name.removeprefix(_TREE): x for name, x in arrays.items() if name not in rows}
        check_arrays(rows, _RULES)
        check_rows(rows["labels"], (len(rows["weight"]), len(rows["bias"])), num_labels)
        correction = _read(texts[f"{self.name}.json"]).correction
        if (correction == "tree") != bool(tree):
            raise ValueError(f"correction {correction!r} with {len(tree)} arrays of a label tree")
        of_tree = LabelTree.from_arrays(tree) if tree else None
        return LinearScorer(LinearModel(**rows), correction, of_tree)
