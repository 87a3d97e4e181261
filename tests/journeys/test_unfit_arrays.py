"""Arrays of numbers that are finite and too large: refused before a version is served."""

import hashlib
import os
import shutil
import warnings
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file, save

from longtail.commands.changed_version import publish_changed
from longtail.models.bundle.bundle import open_bundle
from longtail.models.bundle.manifest import MANIFEST_NAME, FileInfo
from longtail.models.bundle.registry import CHANGES_NAME, STATE_NAME, Registry
from longtail.models.edit.rewriting import rewrite
from longtail.models.errors import BundleCorruptError, BundleError, ConfigError
from longtail.models.predict.predictor import Predictor
from longtail.models.predict.trial import check_answers
from longtail.models.ranking.threshold_algorithm import rank_given
from longtail.models.sharing.transfer import pull
from longtail.training.estimators.classifier import LongtailClassifier


def forged(bundle, folder, file, name, value=None):
    """Write a bundle in which all elements of an array are the largest finite number."""
    shutil.copytree(bundle.folder, folder, copy_function=os.link)
    arrays = {key: array.copy() for key, array in load_file(bundle.folder / file).items()}
    dtype = arrays[name].dtype
    limits = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    arrays[name][...] = limits.max if value is None else value
    content = save(arrays)
    (folder / file).unlink()
    (folder / file).write_bytes(content)
    info = FileInfo(hashlib.sha256(content).hexdigest(), len(content))
    manifest = replace(bundle.manifest, files={**bundle.manifest.files, file: info})
    (folder / MANIFEST_NAME).unlink()
    (folder / MANIFEST_NAME).write_text(manifest.to_json(), encoding="utf-8")
    return folder


def all_arrays(bundle):
    yield from ((file, name) for file, names in bundle.manifest.tensors.items() for name in names)
    encoder = "encoder/model.safetensors"
    if encoder in bundle.manifest.files:
        yield from ((encoder, name) for name in load_file(bundle.folder / encoder))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "kind", ["trained_sparse", pytest.param("trained", marks=pytest.mark.slow)]
)
def test_an_array_of_the_largest_numbers_is_refused_or_answered(kind, request, tmp_path):
    own, refused = request.getfixturevalue(kind).bundle, set()
    for number, (file, name) in enumerate(all_arrays(own)):
        folder = forged(own, tmp_path / str(number), file, name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                bundle = open_bundle(folder)
                check_answers(bundle)
            except (BundleError, ConfigError):  # the latter of a folder of an encoder
                refused.add((file, name))
                continue
            predictor = Predictor.of_bundle(bundle, device="cpu")
            for scorer in predictor.scorers.names:
                (found,) = predictor.predict(["Olive oil and its duties"], k=5, scorer=scorer)
                assert np.isfinite([label.score for label in found.labels]).all(), (file, name)
    assert ("sparse.safetensors", "bias") in refused
    assert ("names.safetensors", "tree_values") in refused or kind == "trained_sparse"


def test_a_model_that_cannot_answer_is_not_pulled(trained_sparse, tmp_path):
    own = trained_sparse.bundle
    folder = forged(own, tmp_path / "bad", "sparse.safetensors", "bias")
    registry = Registry(tmp_path / "registry")
    with pytest.raises(BundleCorruptError, match=r"bias has the value 3.4\d*e\+38"):
        pull(str(folder), registry, activate=True, check=check_answers)
    assert registry.versions() == []


@pytest.mark.parametrize("command", ["verify", "activate"])
def test_the_commands_refuse_a_model_that_cannot_answer(command, trained_sparse, tmp_path, run):
    registry = Registry(tmp_path / "registry")
    forged(trained_sparse.bundle, tmp_path / "bad", "sparse.safetensors", "bias")
    registry.folder.mkdir()
    (tmp_path / "bad").rename(registry.folder / "1")
    done = run("registry", command, "1", "--registry", registry.folder)
    assert done.status == 1
    assert "bias has the value" in done.err
    assert registry.current() is None


def test_finite_scores_are_tried_where_each_number_is_allowed(
    trained_sparse, tmp_path, monkeypatch
):
    """What no rule of an array finds is found by the first predictions."""
    predict = Predictor.predict_batch

    def huge(self, batch, options):
        found = predict(self, batch, options)
        for label in found[0].labels:
            object.__setattr__(label, "score", float("inf"))
        return found

    monkeypatch.setattr(Predictor, "predict_batch", huge)
    with pytest.raises(BundleCorruptError, match="the score inf"):
        check_answers(trained_sparse.bundle)


def changed(bundle, word):
    """Write the same model with another manifest."""
    manifest = replace(bundle.manifest, training={**bundle.manifest.training, "word": word})
    return lambda folder: rewrite(folder, bundle, manifest, bundle.catalogue, {}, {})


@pytest.fixture
def registry(place):
    """It has version 1, which is current, and version 2."""
    found = Registry(place / "registry")
    found.publish(changed(found.open(1), "second"), activate=False)
    return found


@pytest.fixture
def break_filters(monkeypatch, trained_sparse):
    """Lets a filter of few labels end in an error of Python, as a wrong place in an array does."""
    num_labels = len(trained_sparse.bundle.catalogue)

    def broken(scorers, combine, k, labels):
        if len(labels) < num_labels:
            raise IndexError("index 3 is out of bounds")
        return rank_given(scorers, combine, k, labels)

    def break_now():
        monkeypatch.setattr("longtail.models.ranking.threshold_algorithm.rank_given", broken)

    return break_now


def state_of(registry):
    files = [registry.folder / name for name in (STATE_NAME, CHANGES_NAME)]
    return [path.read_bytes() for path in files], sorted(registry.folder.iterdir())


@pytest.mark.parametrize(
    "words", [("train", "data", "--without-encoder"), ("registry", "activate", "2")]
)
def test_no_command_lets_current_name_what_a_start_would_refuse(
    registry, break_filters, run, words
):
    before = state_of(registry)
    break_filters()
    done = run(*words)
    assert (done.status, "IndexError" in done.last_line) == (1, True)
    assert state_of(registry) == before


def test_a_changed_version_that_could_not_be_served_is_not_published(registry, break_filters):
    before, bundle = state_of(registry), registry.open(1)
    break_filters()
    options = {"activate": True, "force": True, "action": "add-label"}
    with pytest.raises(BundleCorruptError, match="IndexError"):
        publish_changed(registry, bundle, changed(bundle, "third"), None, "dev", **options)
    assert state_of(registry) == before


def test_an_estimator_that_could_not_be_served_is_not_saved(registry, break_filters, place):
    found = LongtailClassifier.load(registry.folder)
    break_filters()
    with pytest.raises(BundleCorruptError, match="IndexError"):
        found.save(place / "other")
    assert Registry(place / "other").versions() == []
