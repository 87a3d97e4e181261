"""Scorers that help no blend are left out with their files, unless the configuration names them."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from longtail.models.errors import ConfigError
from longtail.models.kinds.registry import KINDS, kinds_of_new_labels
from longtail.models.kinds.storage import read_parts
from longtail.training.calibration.ensemble import Blending
from longtail.training.configuration.run import TrainingConfig, read_config
from longtail.training.pipeline.dev_split import _reduced
from longtail.training.pipeline.fittings import with_scorer_settings


@pytest.fixture(scope="module")
def by_default(train_in, tiny_corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("by-default")
    return train_in(folder, TrainingConfig(encoder="none", seed=3), tiny_corpus)


def test_what_is_left_is_the_default_what_a_blend_has_and_what_these_need(by_default):
    bundle = by_default.bundle
    manifest = bundle.manifest
    (blend,) = manifest.blends.values()
    needed = {"sparse", "ensemble", manifest.default_scorer, *blend.weights}
    needed |= {"word_vectors"} if "word_neighbours" in needed else set()
    needed |= set() if kinds_of_new_labels(needed) else {"names"}
    assert {*manifest.scorers} == needed < {*KINDS, "ensemble"}
    assert {*manifest.calibrations} == {*manifest.metrics["dev"]} == needed
    assert {x.partition(".")[0] for x in manifest.files} & {*KINDS} == needed - {"ensemble"}
    again = with_scorer_settings(TrainingConfig.model_validate(manifest.training))  # as `learn`
    assert again.scorers == manifest.scorers and {*again.scorer_settings} <= needed


def test_one_that_scores_labels_without_documents_stays(by_default):
    parts = read_parts(by_default.bundle)
    blends = {name: _of_sparse(blend) for name, blend in parts.blends.items()}
    found, _ = _reduced(parts, Blending(parts.calibrations, blends), "sparse")
    assert {*found.models} == {"names"}


def _of_sparse(blend):
    return replace(blend, weights={"sparse": next(iter(blend.weights.values()))})


def test_scorers_that_are_named_stay(train_in, tiny_corpus, tmp_path):
    names = TrainingConfig(encoder="none").scorers
    found = train_in(tmp_path, TrainingConfig(scorers=names, seed=3), tiny_corpus)
    assert {*found.bundle.manifest.scorers} == {*names}


def test_the_configuration_may_name_the_default_scorer(train_in, tiny_corpus, tmp_path):
    config = TrainingConfig(scorers=("sparse", "ensemble"), default_scorer="sparse", seed=3)
    manifest = train_in(tmp_path, config, tiny_corpus).bundle.manifest
    assert manifest.default_scorer == "sparse"
    assert manifest.default_scorer_reason == "it was configured"


def test_what_does_not_go_together_is_refused(train_in, tiny_corpus, tmp_path):
    with pytest.raises(ConfigError, match="default_scorer is 'linear'; expected one of"):
        read_config(None, {"default_scorer": "linear"})
    with pytest.raises(ConfigError, match="encoder is 'none', but scorers has 'retrieval'"):
        read_config(None, {"encoder": "none", "scorers": ["sparse", "retrieval"]})
    copied_corpus = Path(shutil.copytree(tiny_corpus, tmp_path / "corpus"))
    (copied_corpus / "dev.jsonl").unlink()
    config = TrainingConfig(scorers=("sparse", "ensemble"), default_scorer="ensemble", seed=3)
    with pytest.raises(ConfigError, match="default_scorer is 'ensemble', which could not be"):
        train_in(tmp_path / "run", config, copied_corpus)
