"""Labels that lose their only document, against a model in which it never carried them."""

from dataclasses import replace

import numpy as np
import pytest

from longtail.models.kinds.storage import read_parts
from longtail.models.lexical.matcher import FindHistory
from longtail.models.names import NAMES, RETRIEVAL, SPARSE
from longtail.models.options import RankingOptions
from longtail.models.predict.predictor import Predictor
from longtail.models.ranking.top_k import NO_LABEL
from longtail.models.scorers.calibration import log_odds_of
from longtail.training.calibration.blends import fit_blend
from longtail.training.calibration.fit import fit_calibration
from longtail.training.calibration.scored_pairs import PairCollector
from longtail.training.calibration.unseen import pairs_without_documents
from longtail.training.data.dataset import open_dataset


@pytest.fixture(scope="module")
def parts(trained):
    return read_parts(trained.bundle)


@pytest.fixture(scope="module")
def counts(parts):
    """Counts of the catalogue, except that every third label has a single document."""
    counts = parts.catalogue.training_counts.copy()
    counts[::3] = 1
    return counts


@pytest.fixture(scope="module")
def collected(parts, tiny_corpus):
    predictor, split = Predictor(parts, device="cpu"), open_dataset(tiny_corpus).split("dev")
    collector = PairCollector(predictor, split.scan().labels)
    texts = list(split.texts())
    batches = list(collector.watch([predictor.read(texts[:9]), predictor.read(texts[9:])]))
    return collector.pairs, batches


def test_every_pair_of_a_label_with_one_document_comes_again_without_it(parts, counts, collected):
    pairs, batches = collected
    found = pairs_without_documents(pairs, batches, counts, parts)
    names = parts.models[NAMES]
    right = np.where((counts == 1)[:, None], 0, names.history.right)
    blind = Predictor(
        replace(
            parts, models={NAMES: replace(names, history=FindHistory(names.history.found, right))}
        ),
        device="cpu",
    )
    texts = [text for batch in batches for text in batch.texts]
    named = blind.score(blind.read(texts), pairs.labels, RankingOptions(scorer=NAMES))
    seen = 0
    for row in range(len(pairs.labels)):
        wanted = [
            (label, pairs.is_true[row, at], pairs.is_best[row, at], pairs.weights[row, at],
             pairs.scores[RETRIEVAL][row, at], named[row, at])
            for at, label in enumerate(pairs.labels[row])
            if label != NO_LABEL and counts[label] == 1
        ]  # fmt: skip
        there = found.labels[row] != NO_LABEL
        columns = (found.labels, found.is_true, found.is_best, found.weights)
        scores = (found.scores[RETRIEVAL], found.scores[NAMES])
        got = list(zip(*(each[row, there] for each in (*columns, *scores)), strict=True))
        assert got == wanted
        assert (found.weights[row, ~there] == 0).all()
        seen += len(wanted)
    assert seen > 100
    assert np.isneginf(found.scores[SPARSE]).all()
    changed = named[(pairs.labels != NO_LABEL) & (counts[pairs.labels] == 1)]
    assert not np.array_equal(
        changed, pairs.scores[NAMES][(pairs.labels != NO_LABEL) & (counts[pairs.labels] == 1)]
    )


def test_without_a_label_of_one_document_there_are_none(parts, counts, collected):
    pairs, batches = collected
    assert pairs_without_documents(pairs, batches, np.maximum(counts, 2), parts) is None


def test_a_dev_split_without_unseen_labels_teaches_what_names_are_worth_to_them(
    parts, counts, collected
):
    """Else what `sparse` can't score counts as what it scores lowest."""
    pairs, batches = collected
    seen = np.maximum(counts, 1)
    members = (NAMES, SPARSE)
    calibrations = {name: fit_calibration(*pairs.of(name)) for name in members}
    unseen = pairs_without_documents(pairs, batches, seen, parts)
    with_them = fit_blend(pairs, members, calibrations, seen, unseen=unseen)
    without = fit_blend(pairs, members, calibrations, seen)

    def log_loss(blend):
        """The loss of pairs that have lost their documents, in nats."""
        known = np.maximum(
            log_odds_of(calibrations[NAMES], unseen.scores[NAMES]), blend.floors[NAMES]
        )
        total = blend.intercepts[0] + blend.weights[NAMES][0] * known
        total += blend.weights[SPARSE][0] * blend.floors[SPARSE]
        is_used = (unseen.weights > 0) & (unseen.scores[NAMES] > -np.inf)
        return (unseen.weights * np.logaddexp(0, np.where(unseen.is_true, -total, total)))[
            is_used
        ].sum()

    assert log_loss(with_them) < log_loss(without)
