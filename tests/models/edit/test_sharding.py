"""Shards against the model that they were split from: the same labels and scores, to the bit."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file
from scipy.sparse import csr_array

from longtail.models.bundle.bundle import Bundle, file_info, open_bundle
from longtail.models.bundle.manifest import Calibration, RarityBlend, digest_of
from longtail.models.bundle.shard import SHARD_NAME, Shard, shard_ranges
from longtail.models.edit.add_labels import add_labels
from longtail.models.edit.split_shards import part_of, split_bundle, split_parts
from longtail.models.errors import BundleCorruptError, BundleError, RequestError
from longtail.models.label_tree.arrays import depth_of, one_sided_biases
from longtail.models.label_tree.tree import LabelTree
from longtail.models.labels.catalogue import Label, LabelCatalogue, WholeCatalogue
from longtail.models.labels.filters import LabelFilter, LabelSet
from longtail.models.memory.memory import NeighbourMemory
from longtail.models.options import RankingOptions
from longtail.models.parts.dense_parts import DenseParts
from longtail.models.parts.model_parts import ModelParts
from longtail.models.parts.storage import read_parts
from longtail.models.predict.predictor import Predictor
from longtail.models.predict.sharded import ShardedPredictor, in_order
from longtail.models.ranking import exhaustive, threshold_algorithm
from longtail.models.ranking.top_k import Ranking
from longtail.models.scorers.linear import LinearModel, LinearScorer
from longtail.models.scorers.sparse import SparseModel
from longtail.models.scorers.tfidf import TfidfModel

WORDS = ("river", "fish", "law", "trade", "steel", "milk", "tax", "court", "port", "grain")
TEXTS = ("river law", "steel steel milk tax", "grain", "the fish and the court", "zebra")
SCORERS = ("retrieval", "classifier", "hybrid", "linear", "sparse", "neighbours", "ensemble")
BLEND = RarityBlend(
    counts=(0, 1, 3),  # labels have 0, 1 or 2 documents
    intercepts=(-1.0, -0.5, 0.25),
    weights={"retrieval": (1.0, 0.5, 0.1), "linear": (0.0, 0.25, 0.7), "sparse": (0.0, 0.25, 0.3)},
    floors={"retrieval": -6.0, "linear": -0.5, "sparse": -2.0},
)
MakeParts = Callable[..., ModelParts]


def test_ranges_of_shards_follow_on_each_other():
    assert shard_ranges(7, 3) == [range(0, 3), range(3, 5), range(5, 7)]
    assert shard_ranges(4, 4) == [range(i, i + 1) for i in range(4)]
    assert shard_ranges(9, 1) == [range(9)]


@settings(max_examples=40)
@given(
    num_labels=st.integers(1, 70),
    num_shards=st.integers(1, 16),
    k=st.integers(1, 70),
    scorer=st.sampled_from(SCORERS),
    correction=st.sampled_from(["tree", "prior", "none"]),
    tail_dial=st.sampled_from([0.0, 0.7, 30.0]),
    seed=st.integers(0, 2**16),
)
def test_shards_rank_as_the_whole_does(
    make_parts, num_labels, num_shards, k, scorer, correction, tail_dial, seed
):
    parts = make_parts(num_labels, correction, seed)
    whole, shards = Predictor(parts), sharded(parts, min(num_shards, num_labels))
    batch, k = whole.read(TEXTS), min(k, num_labels)
    options = RankingOptions(k, scorer, tail_dial=tail_dial)
    assert_equal(shards.rank(batch, options), whole.rank(batch, options))


@pytest.mark.parametrize("scorer", SCORERS)
def test_each_number_of_shards_ranks_as_the_whole_does(make_parts, scorer, certified):
    """By the ways of ranking that large models go."""
    parts = make_parts(150, "tree", seed=4)
    whole = Predictor(parts)
    batch = whole.read(TEXTS)
    options = RankingOptions(12, scorer)
    wanted = whole.rank(batch, options)
    for num_shards in range(1, 17):
        assert_equal(sharded(parts, num_shards).rank(batch, options), wanted)


FILTERS = {
    "few": LabelFilter(include=("L3", "L59", "L20", "L3")),
    "but one": LabelFilter(exclude=("L7",)),
    "but many": LabelFilter(exclude=tuple(f"L{i}" for i in range(0, 60, 2))),
    "a set": LabelFilter(include_set=LabelSet("s", ("L1", "L2", "gone", "L40"))),
    "a set and more": LabelFilter(("L50",), ("L2",), LabelSet("s", ("L1", "L2"))),
    "not a set": LabelFilter(exclude_set=LabelSet("s", ("L0", "L58", "gone"))),
    "most of a set": LabelFilter(
        include_set=LabelSet("s", tuple(f"L{i}" for i in range(5, 55))),
        exclude_set=LabelSet("t", tuple(f"L{i}" for i in range(0, 60, 3))),
    ),
    "nothing": LabelFilter(include=("L1",), exclude=("L1",)),
    "all": LabelFilter(),
}


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("few", [0, 1024])
def test_filters_mean_what_they_do_in_the_whole(make_parts, certified, monkeypatch, name, few):
    """By both ways of ranking some of the labels."""
    monkeypatch.setattr(exhaustive, "_ALWAYS_UP_TO", few)
    parts, wanted = make_parts(60, "tree", seed=7), FILTERS[name]
    whole = Predictor(parts)
    batch = whole.read(TEXTS)
    for num_shards in (2, 16):
        shards = sharded(parts, num_shards)
        for scorer in SCORERS:
            options = RankingOptions(9, scorer, tail_dial=0.7, label_filter=wanted)
            assert_equal(shards.rank(batch, options), whole.rank(batch, options))


@settings(max_examples=25)
@given(
    num_shards=st.integers(1, 16),
    scorer=st.sampled_from(SCORERS),
    correction=st.sampled_from(["tree", "prior", "none"]),
    include=st.none() | st.lists(st.integers(0, 39), max_size=30),
    exclude=st.lists(st.integers(0, 39), max_size=30),
    include_set=st.none() | st.lists(st.integers(0, 60), max_size=30),
    exclude_set=st.none() | st.lists(st.integers(0, 60), max_size=30),
    data=st.data(),
)
def test_shards_predict_among_some_as_the_whole_does(
    make_parts, num_shards, scorer, correction, include, exclude, include_set, exclude_set, data
):
    """Or refuse with the same words, as where a set to include has no label that there is."""
    parts = make_parts(40, correction, seed=num_shards)
    wanted = LabelFilter(
        None if include is None else ids_of(include),
        ids_of(exclude),
        None if include_set is None else LabelSet("s", ids_of(include_set)),
        None if exclude_set is None else LabelSet("t", ids_of(exclude_set)),
    )
    threshold = data.draw(st.sampled_from([None, 0.4]))
    given_ = {
        "k": data.draw(st.integers(1, 40)), "scorer": scorer, "threshold": threshold,
        "tail_dial": 0.0 if threshold else data.draw(st.sampled_from([0.0, 0.7])),
        "label_filter": wanted,
    }  # fmt: skip
    found, expected = (
        outcome_of(each, given_) for each in (sharded(parts, num_shards), Predictor(parts))
    )
    assert found == expected


@pytest.mark.parametrize(
    "wanted",
    [
        LabelFilter(include=("L1", "X", "L39", "Y", "X")),
        LabelFilter(include=("L1",), exclude=tuple(f"X{i}" for i in range(7))),
        LabelFilter(include_set=LabelSet("s", ("gone", "too"))),
        LabelFilter(include=("L1",), include_set=LabelSet("s", ("gone",)), exclude=("X",)),
        LabelFilter(include=("X",), include_set=LabelSet("s", ("gone",)), exclude=("Y",)),
    ],
)
def test_labels_that_no_shard_has_are_refused_as_by_the_whole(make_parts, wanted):
    parts = make_parts(40, "tree", seed=1)
    shards = sharded(parts, 3)
    given = {"label_filter": wanted}
    expected = outcome_of(Predictor(parts), given)
    assert isinstance(expected, str)
    assert outcome_of(shards, given) == expected
    with pytest.raises(RequestError, match="this version has no"):
        shards.rank(shards.read(TEXTS), RankingOptions(label_filter=wanted))


@pytest.mark.parametrize("scorer", SCORERS)
@pytest.mark.parametrize("num_shards", [1, 3, 16])
def test_explanations_are_those_of_the_whole(make_parts, scorer, num_shards):
    parts = make_parts(50, "tree", seed=3)
    shards, whole = sharded(parts, num_shards), Predictor(parts)
    for options in (
        {"k": 7},
        {"k": 50, "threshold": 0.3},
        {"k": 4, "tail_dial": 0.7},
        {"k": 9, "label_filter": LabelFilter(exclude=("L1", "L49"))},
        {"k": 9, "label_filter": LabelFilter(include=("L20",))},
    ):
        given = {"scorer": scorer, "explain": True, **options}
        wanted = whole.predict(TEXTS, **given)
        assert shards.predict(TEXTS, **given) == wanted
        assert any(each.explanations for each in wanted)


def test_an_explanation_without_the_correction(make_parts):
    parts = make_parts(30, "tree", seed=8)
    given = {"scorer": "linear", "correction": "none", "explain": True}
    assert sharded(parts, 4).predict(TEXTS, **given) == Predictor(parts).predict(TEXTS, **given)


@pytest.mark.parametrize("num_shards", [1, 3, 7, 16])
def test_labels_like_others_are_sought_in_all_shards(make_parts, num_shards):
    """Most cosines tie, and labels without weights are like no other."""
    parts = replace(make_parts(40, "none", seed=9), dense=None, has_hybrid=False, blends={})
    given = {"k": 20, "explain": True}
    wanted = Predictor(parts).predict(TEXTS, **given)
    assert sharded(parts, num_shards).predict(TEXTS, **given) == wanted
    owners = {near.index // 20 for x in wanted for why in x.explanations for near in why.nearest}
    assert owners == {0, 1}


def test_nothing_is_explained_where_nothing_is_found(make_parts):
    shards = sharded(make_parts(30, "tree", seed=8), 4)
    found = shards.predict(TEXTS, explain=True, label_filter=LabelFilter(include=()))
    assert [(each.labels, each.explanations) for each in found] == [((), ())] * len(TEXTS)
    assert shards.predict([], explain=True) == []


def test_scores_tie_across_shards(make_parts):
    """Else the tests above would say nothing of ties."""
    parts = make_parts(60, "tree", seed=5)
    found = Predictor(parts).rank(Predictor(parts).read(TEXTS), RankingOptions(60, "retrieval"))
    is_tie = found.scores[:, 1:] == found.scores[:, :-1]
    shard_of = found.labels // 15
    assert (is_tie & (shard_of[:, 1:] != shard_of[:, :-1])).sum() > 20


def test_an_uncorrected_scorer_can_be_asked_for(make_parts):
    parts = make_parts(40, "tree", seed=1)
    whole, shards = Predictor(parts), sharded(parts, 3)
    batch = whole.read(TEXTS)
    options = RankingOptions(9, "linear", correction="none")
    assert_equal(shards.rank(batch, options), whole.rank(batch, options))


def test_labels_added_behind_the_tree(make_parts):
    """A shard of added labels only: no leaf, and no row in any scorer but `retrieval`."""
    parts = with_more_labels(make_parts(30, "tree", seed=2), 30)
    whole, shards = Predictor(parts), sharded(parts, 4)
    batch = whole.read(TEXTS)
    for scorer in SCORERS:
        options = RankingOptions(60, scorer)
        assert_equal(shards.rank(batch, options), whole.rank(batch, options))


def test_a_model_of_retrieval_alone(make_parts):
    parts = make_parts(40, "tree", seed=6)
    dense = replace(parts.dense, classifier=None, linear=None)
    parts = replace(parts, dense=dense, has_hybrid=False, blends={})
    whole, shards = Predictor(parts), sharded(parts, 3)
    batch = whole.read(TEXTS)
    options = RankingOptions(9)
    assert_equal(shards.rank(batch, options), whole.rank(batch, options))


@pytest.mark.parametrize("scorer", SCORERS)
@pytest.mark.parametrize("threshold", [None, 0.3])
def test_predictions_are_those_of_the_whole(make_parts, scorer, threshold):
    parts = make_parts(50, "tree", seed=3)
    given = {"k": 7, "scorer": scorer, "threshold": threshold}
    assert sharded(parts, 4).predict(TEXTS, **given) == Predictor(parts).predict(TEXTS, **given)


@settings(max_examples=25)
@given(
    cuts=st.sets(st.integers(1, 39), min_size=1, max_size=15),
    k=st.integers(1, 40),
    scorer=st.sampled_from(SCORERS),
    threshold=st.sampled_from([None, 0.4]),
    explain=st.booleans(),
    exclude=st.sets(st.integers(0, 39), max_size=30),
)
def test_shards_of_unlike_sizes_predict_as_the_whole_does(
    make_parts, cuts, k, scorer, threshold, explain, exclude
):
    """A shard that has fewer labels than are wanted gives all that it has."""
    parts = make_parts(40, "tree", seed=len(cuts))
    ranges = [range(*each) for each in pairwise([0, *sorted(cuts), 40])]
    shards = ShardedPredictor([Predictor(part_of(parts, labels)) for labels in ranges])
    given_ = {
        "k": k, "scorer": scorer, "threshold": threshold, "explain": explain,
        "tail_dial": 0.0 if threshold else 0.7,
        "label_filter": LabelFilter(exclude=ids_of(sorted(exclude))),
    }  # fmt: skip
    assert shards.predict(TEXTS, **given_) == Predictor(parts).predict(TEXTS, **given_)


@pytest.mark.parametrize("k", [0, 51])
def test_a_number_of_labels_that_there_are_not(make_parts, k):
    shards = sharded(make_parts(50, "tree", seed=3), 4)
    with pytest.raises(RequestError, match=f"k is {k}; expected (1 to 50|at least 1)"):
        shards.rank(shards.read(TEXTS), RankingOptions(k))


@settings(max_examples=30)
@given(num_labels=st.integers(2, 60), seed=st.integers(0, 2**16), data=st.data())
def test_priors_of_a_part_are_those_of_the_whole(num_labels, seed, data):
    counts = np.random.default_rng(seed).integers(0, 1000, num_labels)
    labels = LabelCatalogue(Label(str(i), "x", training_count=int(n)) for i, n in enumerate(counts))
    first = data.draw(st.integers(0, num_labels - 1))
    stop = data.draw(st.integers(first + 1, num_labels))
    part = labels.part(first, stop)
    assert (part.log_priors == labels.log_priors[first:stop]).all()
    assert part.whole == labels.whole == WholeCatalogue(num_labels, int(counts.sum()))
    assert part.replaced(name=["y"] * len(part)).whole == labels.whole


@pytest.mark.parametrize("num_shards", [1, 3, 7])
def test_bundles_of_shards(bundle, tmp_path, num_shards):
    whole = Predictor.of_bundle(bundle)
    bundles = written(bundle, num_shards, tmp_path)
    shards = ShardedPredictor.of_bundles(bundles[::-1])
    assert [len(each.catalogue) for each in bundles] == [
        len(x) for x in shard_ranges(7, num_shards)
    ]
    assert [each.shard.number for each in bundles if each.shard] == list(range(num_shards))
    assert shards.num_labels == 7
    for scorer in whole.scorers:
        for tail_dial in (0.0, 0.5):
            given = {"k": 7, "scorer": scorer, "tail_dial": tail_dial, "explain": True}
            assert shards.predict(TEXTS, **given) == whole.predict(TEXTS, **given)


def test_bundles_of_shards_of_a_sparse_model(sparse_bundle, tmp_path):
    bundles = written(sparse_bundle, 2, tmp_path)
    wanted = Predictor.of_bundle(sparse_bundle).predict(TEXTS, k=4, explain=True)
    assert ShardedPredictor.of_bundles(bundles).predict(TEXTS, k=4, explain=True) == wanted


def test_splitting_again_gives_the_same_bundles(bundle, tmp_path):
    first, second = written(bundle, 2, tmp_path / "a"), written(bundle, 2, tmp_path / "b")
    assert [x.manifest.digest for x in first] == [x.manifest.digest for x in second]


def test_a_shard_tells_what_it_is_of(bundle, tmp_path):
    second = written(bundle, 3, tmp_path)[1]
    assert second.shard == Shard(1, 3, 3, bundle.manifest.digest, bundle.catalogue.whole)
    assert second.manifest.metrics == bundle.manifest.metrics
    assert [label.id for label in second.catalogue] == ["L3", "L4"]


def test_a_shard_is_not_split(bundle, tmp_path):
    shard = written(bundle, 3, tmp_path)[1]
    with pytest.raises(BundleError, match="'1': it is shard 1 of 3 already; split the whole model"):
        split_bundle(shard, 2)


def test_a_shard_gets_no_labels(bundle, tmp_path):
    shard = written(bundle, 3, tmp_path)[1]
    with pytest.raises(BundleError, match="shard 1 of 3; add labels to the whole model"):
        add_labels(shard, [Label("new", "new")])


@pytest.mark.parametrize("num_shards", [0, 8])
def test_more_shards_than_labels(bundle, num_shards):
    with pytest.raises(BundleError, match=f"got {num_shards} shards for 7 labels; expected from 1"):
        split_bundle(bundle, num_shards)


def test_only_all_shards_of_one_model_go_together(bundle, tmp_path):
    shards = written(bundle, 3, tmp_path / "a")
    others = written(bundle, 2, tmp_path / "b")
    assert in_order([shards[2], shards[0], shards[1]]) == shards
    for wrong in ([], shards[:2], [*shards[:2], shards[1]], [*shards, shards[0]], [bundle],
                  [others[0], *shards[1:]], [bundle, *shards[1:]]):  # fmt: skip
        with pytest.raises(BundleError, match="expected each shard of one model once"):
            in_order(wrong)


@pytest.mark.parametrize(
    "change",
    [
        {"number": 3},
        {"number": True},
        {"first": 7},
        {"digest": 1},
        {"whole": {"num_labels": 7}},
        {"whole": {"num_labels": "7", "num_training_pairs": 1}},
        {"more": 1},
    ],
)
def test_a_file_that_is_no_shard(bundle, tmp_path, change):
    good = Shard(1, 3, 3, "d", bundle.catalogue.whole)
    assert Shard.from_json(good.to_json()) == good
    text = json.dumps(json.loads(good.to_json()) | change)
    with pytest.raises((ValueError, TypeError, KeyError)):
        Shard.from_json(text)
    split_bundle(bundle, 3)[1](tmp_path / "shard")
    rewrite(tmp_path / "shard", text)
    with pytest.raises(BundleCorruptError, match=f"'shard': file '{SHARD_NAME}'"):
        open_bundle(tmp_path / "shard")


def test_a_whole_model_must_have_rows(bundle_folder, lie):
    """Only of a shard a scorer may know no label."""
    path = bundle_folder / "classifier.safetensors"
    arrays = {name: array[:0] for name, array in load_file(path).items()}
    save_file(arrays, path)
    info = file_info(path)

    def change(content: dict[str, Any]) -> None:
        content["files"][path.name] = {"sha256": info.sha256, "size_bytes": info.size_bytes}
        for tensor in content["tensors"][path.name].values():
            tensor["shape"][0] = 0

    lie(change)
    with pytest.raises(BundleCorruptError, match="labels that are not rising rows"):
        read_parts(open_bundle(bundle_folder))


def sharded(parts: ModelParts, num_shards: int) -> ShardedPredictor:
    return ShardedPredictor([Predictor(part) for part in split_parts(parts, num_shards)])


def ids_of(labels: Sequence[int]) -> tuple[str, ...]:
    return tuple(f"L{label}" for label in labels)


def outcome_of(predictor: Predictor | ShardedPredictor, options: dict[str, Any]) -> object:
    """What a predictor says about the texts, or why it doesn't."""
    try:
        return predictor.predict(TEXTS, **options)
    except RequestError as error:
        return str(error)


def assert_equal(found: Ranking, wanted: Ranking) -> None:
    assert np.array_equal(found.labels, wanted.labels)
    assert found.scores.tobytes() == wanted.scores.tobytes()


def written(bundle: Bundle, num_shards: int, folder: Path) -> list[Bundle]:
    folder.mkdir(exist_ok=True)
    for number, write in enumerate(split_bundle(bundle, num_shards)):
        write(folder / str(number))
    return [open_bundle(folder / str(number)) for number in range(num_shards)]


def rewrite(folder: Path, text: str) -> None:
    """Put another shard.json into a bundle, and let the manifest say so."""
    (folder / SHARD_NAME).write_text(text)
    info = file_info(folder / SHARD_NAME)
    content = json.loads((folder / "manifest.json").read_text())
    content["files"][SHARD_NAME] = {"sha256": info.sha256, "size_bytes": info.size_bytes}
    content["digest"] = digest_of(content)
    (folder / "manifest.json").write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")


@pytest.fixture
def certified(monkeypatch) -> None:
    """Rank by the Threshold Algorithm, as with more labels than all are scored of."""
    monkeypatch.setattr(exhaustive, "_ALWAYS_UP_TO", 0)
    monkeypatch.setattr(exhaustive, "_BY_MATRIX_UP_TO", 0)
    monkeypatch.setattr(threshold_algorithm, "_FIRST_DEPTH", 16)


@pytest.fixture(scope="module")
def make_parts(dual_encoder, tokenizer) -> MakeParts:
    """Makes models whose weights are small whole numbers, so that many scores tie."""

    def make(num_labels: int, correction: str, seed: int) -> ModelParts:
        rng = np.random.default_rng(seed)
        dim = dual_encoder.dim
        counts = rng.integers(0, 3, num_labels)
        counts[rng.integers(num_labels)] = 2
        covered = np.flatnonzero(counts).astype(np.int64)
        patterns = rng.integers(-1, 2, (4, dim)).astype(np.float32)

        def linear() -> LinearModel:
            rows = patterns[rng.integers(len(patterns), size=len(covered))]
            return LinearModel(rows, rng.integers(0, 2, len(covered)).astype(np.float32), covered)

        weights = rng.integers(-1, 2, (len(covered), len(WORDS))).astype(np.float32)
        names = ("retrieval", "classifier", "linear", "sparse")
        line = Calibration((0.0,), (1.0, 0.5), -1.0)
        tree = tree_of(num_labels, dim, rng) if correction == "tree" else None
        return ModelParts(
            catalogue=LabelCatalogue(
                Label(f"L{i}", f"label {i}", training_count=int(n)) for i, n in enumerate(counts)
            ),
            sparse=SparseModel(
                TfidfModel(sorted(WORDS), np.ones(len(WORDS), dtype=np.float32)),
                csr_array(weights),
                rng.integers(0, 2, len(covered)).astype(np.float32),
                covered,
            ),
            dense=DenseParts(
                encoder=dual_encoder,
                tokenizer=tokenizer,
                max_tokens=8,
                label_vectors=patterns[rng.integers(len(patterns), size=num_labels)],
                classifier=linear(),
                linear=LinearScorer(linear(), correction, tree),
            ),
            has_hybrid=True,
            calibrations=dict.fromkeys([*names, "ensemble"], line)
            | {"neighbours": replace(line, knots=(-5.0,))},
            blends={"ensemble": BLEND},
            neighbours=memory_of(num_labels, rng),
        )

    return make


def memory_of(num_labels: int, rng: np.random.Generator) -> NeighbourMemory:
    """Documents of few words, so that many are equally near, with random labels."""
    num_documents = 30
    return NeighbourMemory.of_documents(
        csr_array((rng.random((num_documents, len(WORDS))) < 0.2).astype(np.float32)),
        csr_array((rng.random((num_documents, num_labels)) < 0.3).astype(np.float32)),
        [f"d{number}" for number in range(num_documents)],
        num_neighbours=8,
        temperature=0.5,
    )


def tree_of(num_labels: int, dim: int, rng: np.random.Generator) -> LabelTree:
    """A random tree with few kinds of decisions, so that leaves tie."""
    num_leaves = 2 ** depth_of(num_labels)
    label_of_leaf = np.full(num_leaves, -1, dtype=np.int64)
    label_of_leaf[np.sort(rng.permutation(num_leaves)[:num_labels])] = rng.permutation(num_labels)
    forced = one_sided_biases((label_of_leaf >= 0).astype(np.int64))
    biases = rng.integers(-1, 2, num_leaves - 1).astype(np.float32)
    return LabelTree.from_arrays(
        {
            "mean": np.zeros(dim, dtype=np.float32),
            "components": rng.standard_normal((2, dim)).astype(np.float32),
            "weights": rng.integers(-1, 2, (num_leaves - 1, 2)).astype(np.float32),
            "biases": np.where(np.isinf(forced), forced, biases),
            "label_of_leaf": label_of_leaf,
        }
    )


def with_more_labels(parts: ModelParts, num_more: int) -> ModelParts:
    """As `longtail.models.edit.add_labels` adds them: with a vector, and nothing else."""
    assert parts.dense is not None
    more: Sequence[Label] = [Label(f"M{i}", f"more {i}") for i in range(num_more)]
    vectors = parts.dense.label_vectors
    return replace(
        parts,
        catalogue=LabelCatalogue([*parts.catalogue, *more]),
        dense=replace(
            parts.dense,
            label_vectors=np.concatenate(
                [vectors, np.resize(vectors, (num_more, vectors.shape[1]))]
            ),
        ),
    )
