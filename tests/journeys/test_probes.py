"""A model that a service would refuse at its start does not become current by any command."""

from dataclasses import replace

import pytest

from longtail.commands.changed_version import publish_changed
from longtail.models.bundle.registry import CHANGES_NAME, STATE_NAME, Registry
from longtail.models.edit.rewriting import rewrite
from longtail.models.errors import BundleCorruptError
from longtail.models.ranking.threshold_algorithm import rank_given
from longtail.training.estimators.classifier import LongtailClassifier


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
