"""The model of names in bundles, and with labels that are added."""

import json
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from longtail.models.bundle.bundle import Bundle, file_info, open_bundle
from longtail.models.bundle.manifest import TensorInfo
from longtail.models.edit.add_labels import add_labels
from longtail.models.errors import BundleCorruptError
from longtail.models.kinds.storage import read_parts, write_parts
from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.models.lexical.boosted_trees import LEAF, BoostedTrees
from longtail.models.lexical.matcher import FEATURES, NUM_KINDS, FindHistory
from longtail.models.lexical.name_model import NameModel, named_label
from longtail.models.names import NAMES
from longtail.models.options import RankingOptions
from longtail.models.predict.predictor import Predictor
from longtail.training.lexical.fit import count_words, words_of

TEXTS = ["the policy of rivers. Fish policy", "steel policies", "zebra", "milk, court, policy"]
NUM_LABELS = 7
TYPES = {"float32": "F32", "float64": "F64", "int64": "I64"}


@pytest.fixture(scope="module")
def names(parts):
    """A model of the names of all labels: the better they are found, the more it gives."""
    rng = np.random.default_rng(0)
    catalogue = LabelCatalogue(map(named_label, parts.catalogue))
    words = words_of(catalogue, ["en", "de"])
    numbers = np.arange(len(FEATURES))
    return NameModel(
        catalogue=catalogue,
        counts=count_words(
            map(words.read_text, ["river policy", "fish and law"]), catalogue, words
        ),
        history=FindHistory(*(rng.integers(*x, (NUM_LABELS, NUM_KINDS)) for x in ((5, 9), (0, 5)))),
        trees=BoostedTrees(
            roots=3 * numbers,
            features=np.array([x for i in numbers for x in (i, LEAF, LEAF)]),
            thresholds=np.array([x for _ in numbers for x in (0.5, 0.0, 0.0)]),
            lefts=np.array([x for i in numbers for x in (3 * i + 1, 0, 0)]),
            rights=np.array([x for i in numbers for x in (3 * i + 2, 0, 0)]),
            values=np.array([x for i in numbers for x in (0.0, -0.1 * i, 0.2 + 0.1 * i)]),
            baseline=np.array([-2.0]),
        ),
        languages=("en", "de"),
    )  # fmt: skip


@pytest.fixture(scope="module")
def named_parts(sparse_parts, names):
    """A model without an encoder that has names."""
    return replace(sparse_parts, models={NAMES: names})


@pytest.fixture
def named(named_parts, sparse_manifest, tmp_path):
    """Its bundle."""
    said = replace(sparse_manifest, scorers=("sparse", "names"))
    write_parts(tmp_path / "named", named_parts, said, tmp_path / "scratch")
    return open_bundle(tmp_path / "named")


def scores_of(predictor: Predictor, texts: list[str] = TEXTS) -> np.ndarray:
    labels = np.tile(np.arange(len(predictor.catalogue)), (len(texts), 1))
    return predictor.score(predictor.read(texts), labels, RankingOptions(scorer="names"))


def test_what_was_written_is_read(named, names, named_parts):
    found = read_parts(named).models[NAMES]
    assert found is not None
    assert list(found.catalogue) == list(names.catalogue)
    assert (found.counts.words, found.languages) == (names.counts.words, names.languages)
    assert found.counts.num_documents == 2
    pairs = [
        (names.counts.documents, found.counts.documents),
        (names.counts.pairs, found.counts.pairs),
        (names.counts.pair_documents, found.counts.pair_documents),
        (names.history.found, found.history.found),
        (names.history.right, found.history.right),
        *(
            (getattr(names.trees, x.name), getattr(found.trees, x.name))
            for x in fields(BoostedTrees)
        ),
    ]
    assert all(np.array_equal(*pair) and pair[0].dtype == pair[1].dtype for pair in pairs)
    before, after = scores_of(Predictor(named_parts)), scores_of(Predictor.of_bundle(named))
    assert before.tobytes() == after.tobytes()
    assert np.isfinite(before).any(axis=1).tolist() == [True, True, False, True]


@pytest.fixture
def broken(named, lie):
    """Changes arrays or texts of the bundle, and lets the manifest say so."""

    def change(file: str, **changed: object) -> Bundle:
        path = named.folder / file
        if path.suffix == ".safetensors":
            save_file(load_file(path) | changed, path)
        elif file == "names.json":
            path.write_text(json.dumps(json.loads(path.read_text()) | changed))
        else:
            path.write_text(str(changed["text"]))
        info = file_info(path)

        def tell(content: dict) -> None:
            content["files"][file] = {"sha256": info.sha256, "size_bytes": info.size_bytes}
            for name, array in changed.items() if path.suffix == ".safetensors" else ():
                told = TensorInfo(array.shape, TYPES[str(array.dtype)])
                content["tensors"][file][name] = {"shape": list(told.shape), "dtype": told.dtype}

        lie(tell, named.folder)
        return open_bundle(named.folder)

    return change


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("documents", lambda x: x[:-1]),
        ("pair_documents", lambda x: x + 3),
        ("pairs", lambda x: x[::-1].copy()),
        ("num_documents", lambda x: x[:0]),
        ("found", lambda x: x[:, :-1].copy()),
        ("right", lambda x: x - 99),
        ("tree_features", lambda x: np.where(x == 17, 18, x)),
        ("tree_roots", lambda x: x + 99),
        ("tree_rights", lambda x: x + 999),
        ("tree_values", lambda x: x * np.nan),
        ("tree_baseline", lambda x: x[:0]),
    ],
)
def test_arrays_that_contradict_each_other_are_refused(broken, name, change):
    file = "names.safetensors"
    with np.errstate(divide="ignore"):
        array = change(load_file(Path(broken.__closure__[1].cell_contents.folder) / file)[name])
    with pytest.raises(BundleCorruptError, match=r"bundle 'named': names\.\w+ can't be used"):
        read_parts(broken(file, **{name: array}))


@pytest.mark.parametrize(
    ("file", "changed"),
    [
        ("names.json", {"words": ["fish"]}),
        ("names.json", {"words": None}),
        ("names.json", {"languages": ["elvish"]}),
        ("names.jsonl", {"text": "{"}),
    ],
)
def test_texts_that_are_none_of_names_are_refused(broken, file, changed):
    with pytest.raises(BundleCorruptError, match=r"bundle 'named': names\.\w+ can't be used"):
        read_parts(broken(file, **changed))


NEW = (Label("N1", "grain tax"), Label("N2", "sea (water)", alternative_names=("oceanic basin",)))


def test_a_new_label_is_found_by_its_name_without_an_encoder(named, tmp_path):
    add_labels(named, NEW)(tmp_path / "added")
    predictor = Predictor.of_bundle(open_bundle(tmp_path / "added"))
    found = predictor.predict(["a grain tax", "by the sea", "oceanic basin"], scorer="names", k=1)
    assert [each.labels[0].id for each in found] == ["N1", "N2", "N2"]
    assert predictor.describe(7).scorers == ("names",)
    old = Predictor.of_bundle(named)
    assert np.array_equal(scores_of(predictor)[:, :7], scores_of(old))
    again = add_labels(open_bundle(tmp_path / "added"), [Label("N3", "grain port")])
    again(tmp_path / "again")
    twice = Predictor.of_bundle(open_bundle(tmp_path / "again"))
    (found,) = twice.predict(["the grain port"], scorer="names", k=1)
    assert found.labels[0].id == "N3"
