"""A promotion moves `current`, or leaves everything as it was."""

from dataclasses import replace

import pytest
from typer.testing import CliRunner

import longtail
from longtail.ext.promotion.judge import HeldOut, promote
from longtail.ext.promotion.paired import PromotionRules
from longtail.models.bundle.bundle import LABELS_NAME, write_bundle
from longtail.models.bundle.registry import Registry
from longtail.models.errors import ConfigError, PromotionRefusedError
from longtail.training.data.dataset import open_dataset

RULES = PromotionRules(
    must_be_better=False, min_documents=10, margin=0.1, max_slowdown=1e6, max_size_ratio=2.0
)


@pytest.fixture
def registry(tmp_path, trained_sparse):
    """Two versions with the same weights; the first is current."""
    copy = Registry(tmp_path / "registry")
    source = trained_sparse.registry.open()
    for name in ("one", "two"):
        manifest = replace(source.manifest, data_fingerprint=name)

        def write(folder, manifest=manifest):
            files = [file for file in manifest.files if file != LABELS_NAME]
            tensors = {x: source.tensors(x) for x in files if x.endswith(".safetensors")}
            return write_bundle(
                folder,
                manifest=manifest,
                catalogue=source.catalogue,
                tensors=tensors,
                texts={file: source.text(file) for file in files if file not in tensors},
                encoder_folder=None,
            )

        copy.publish(write, activate=name == "one")
    return copy


@pytest.fixture
def held_out(tiny_corpus):
    return HeldOut(open_dataset(tiny_corpus), "dev")


def test_what_passes_becomes_current_and_can_be_rolled_back(registry, held_out):
    assert promote(registry, 2, held_out, RULES).has_passed and registry.current() == 2
    with pytest.raises(ConfigError, match="--candidate 2: is the current version already"):
        promote(registry, 2, held_out, RULES)
    assert registry.rollback() == 1


def test_what_is_refused_leaves_everything_as_it_was(registry, held_out):
    verdict = promote(registry, 2, held_out, replace(RULES, must_be_better=True))
    assert verdict.reasons and registry.current() == 1


def test_the_command_promotes_what_is_as_good_where_asked_and_else_fails(
    registry, tiny_corpus, monkeypatch
):
    monkeypatch.setattr(
        "longtail.ext.promotion.paired.PromotionRules",
        lambda must_be_better: replace(RULES, must_be_better=must_be_better),
    )
    words = ["promote", "--candidate", "2", "--data", tiny_corpus, "--registry", registry.folder]
    refused = CliRunner().invoke(longtail.app, [*map(str, words)])
    assert isinstance(refused.exception, PromotionRefusedError) and registry.current() == 1
    done = CliRunner().invoke(longtail.app, [*map(str, words), "--not-worse"])
    assert done.exit_code == 0 and "Version 2 is promoted" in done.output
    assert registry.current() == 2
