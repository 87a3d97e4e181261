"""All kinds of scorers: the kinds of this package, and the kinds that other packages register."""

from __future__ import annotations

from collections.abc import Collection

from longtail.models.errors import ConfigError
from longtail.models.kinds.dense import RetrievalKind, RowsKind
from longtail.models.kinds.names import NamesKind
from longtail.models.kinds.neighbours import (
    DenseNeighboursKind,
    NeighboursKind,
    WordNeighboursKind,
)
from longtail.models.kinds.scorer import ScorerKind
from longtail.models.kinds.sparse import SparseKind
from longtail.models.kinds.word_vectors import WordVectorsKind
from longtail.models.names import (
    CLASSIFIER,
    ENSEMBLE,
    FAST,
    HYBRID,
    HYBRID_OF,
    LINEAR,
    RETRIEVAL,
    SPARSE,
)

KINDS: dict[str, ScorerKind] = {
    kind.name: kind
    for kind in (
        RetrievalKind(),
        RowsKind(CLASSIFIER, gives_logits=True),
        RowsKind(LINEAR, gives_logits=False),
        DenseNeighboursKind(),
        SparseKind(),
        NamesKind(),
        NeighboursKind(),
        WordVectorsKind(),
        WordNeighboursKind(),
    )
}
"""By name, in the order in which they are listed; `ensemble` blends them."""


def register(kind: ScorerKind) -> None:
    """Add a scorer, which is then stored, read, ranked, blended and explained as all others."""
    if kind.name in scorer_names():
        raise ConfigError(f"scorer {kind.name!r}: there is one of this name; choose another name")
    if not kind.name.isidentifier():
        raise ConfigError(
            f"scorer {kind.name!r}: the name is no identifier; expected letters, digits and _"
        )
    KINDS[kind.name] = kind


def without_encoder() -> tuple[str, ...]:
    """Return the scorers that need no encoder; `fast` blends them."""
    return tuple(name for name, kind in KINDS.items() if not kind.needs_encoder)


def keeping_documents() -> tuple[str, ...]:
    """Return the scorers whose models hold the words of training documents."""
    return tuple(name for name, kind in KINDS.items() if kind.keeps_documents)


def scorer_names() -> tuple[str, ...]:
    """Return all scorers in their order, blends among them."""
    others = [name for name in KINDS if name not in HYBRID_OF]
    return (*HYBRID_OF, HYBRID, *others, FAST, ENSEMBLE)


def kinds_of_new_labels(scorers: Collection[str]) -> list[ScorerKind]:
    """Return which of these scorers can score labels that no training document carries."""
    return [kind for kind in KINDS.values() if kind.name in scorers and kind.scores_new_labels]


def with_own_models(scorers: Collection[str]) -> list[ScorerKind]:
    """Return which of these scorers have a model of their own, in files of their own."""
    shared = (SPARSE, RETRIEVAL)
    return [kind for name, kind in KINDS.items() if name in scorers and name not in shared]
