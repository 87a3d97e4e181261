"""Figures by the language of the documents, where a split has several."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import numpy as np
from jaxtyping import Float32
from scipy.sparse import csr_array

from longtail.models.ranking.top_k import Ranking
from longtail.training.data.languages import language_of, name_of
from longtail.training.evaluation.by_frequency import ALL_LABELS, Evaluation
from longtail.training.evaluation.tables import Table

LEAST_SHARE = 0.05
"""Of a split's documents, from which on a language has figures."""
_NOTE = (
    f"Languages of at least {LEAST_SHARE:.0%} of the documents, told by their most common words; "
    "documents that tell none are in no row."
)


def evaluate_languages(
    texts: Iterable[str],
    rankings: Mapping[str, Ranking],
    truth: Float32[csr_array, "document label"],
    measure: Callable[[dict[str, Ranking], csr_array], Evaluation],
) -> dict[str, Evaluation]:
    """Measure the documents of each language that makes `LEAST_SHARE` of them, the largest first.

    Returns:
        By ISO 639 code; empty where fewer than two languages make so many.
    """
    told = np.array([language_of(text) for text in texts])
    counts = Counter(told.tolist()).most_common()
    found = {}
    for language in [x for x, count in counts if x and count >= LEAST_SHARE * len(told)]:
        rows = np.flatnonzero(told == language)
        own = {name: Ranking(x.labels[rows], x.scores[rows]) for name, x in rankings.items()}
        found[language] = measure(own, truth[rows])
    return found if len(found) > 1 else {}


def language_tables(found: Mapping[str, Evaluation]) -> list[Table]:
    """Return a table with a row for each language and scorer; none where there are no figures."""
    rows, header = list[list[str]](), list[str]()
    for language, measured in found.items():
        header, cells = measured.overall_cells()
        rows += [[name_of(language), f"{measured.num_documents:,}", *row] for row in cells]
    all_cells = (["language", "documents", *header], rows)
    return [Table("By language of the document", _NOTE, all_cells)] if rows else []


def language_sentence(found: Mapping[str, Evaluation], scorer: str) -> str:
    """Return the precision of a scorer in each language; empty where there are no figures."""
    shares = [
        f"{100 * x.scorers[scorer][ALL_LABELS].values['P@1']:.1f} % of {x.num_documents:,} in "
        f"{name_of(language)}"
        for language, x in found.items()
    ]
    return f"P@1 by language of the document: {', '.join(shares)}." if shares else ""
