"""A promotion by the registry alone, by a service that is played, and one whose run was killed."""

from dataclasses import replace

import pytest

from longtail.ext.promotion.judge import HeldOut, promote
from longtail.ext.promotion.log import LOG_NAME, PromotionLog
from longtail.ext.promotion.rules import PromotionRules
from longtail.ext.promotion.verdict import Decision
from longtail.models.bundle.bundle import LABELS_NAME, write_bundle
from longtail.models.bundle.registry import Registry
from longtail.models.errors import ConfigError
from longtail.training.data.dataset import open_dataset

RULES = PromotionRules(
    require="not-worse", min_documents=10, margin=0.1, max_slowdown=1e6, max_size_ratio=2.0
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
def log(registry):
    return PromotionLog(registry.folder / LOG_NAME)


@pytest.fixture
def held_out(tiny_corpus):
    return HeldOut(open_dataset(tiny_corpus), "dev")


def events(log: PromotionLog) -> list[str]:
    return [entry["event"] for entry in log.entries()]


def test_without_a_service_the_alias_moves(registry, held_out, log):
    done = promote(registry, 2, held_out, RULES, log)
    assert done.decision.promote and registry.current() == 2
    assert events(log) == ["judged", "decided", "done"]
    judged = log.entries()[0]
    assert judged["rules"] == RULES.to_json() and judged["verdict"] == "passed"
    assert judged["candidate_digest"] == registry.open(2).manifest.digest
    assert registry.rollback() == 1  # the log is no hindrance to the registry
    assert registry.versions() == [1, 2]


def test_what_is_refused_leaves_everything_as_it_was(registry, held_out, log):
    strict = replace(RULES, require="better")
    done = promote(registry, 2, held_out, strict, log, rollout=lambda *_: pytest.fail("tried"))
    assert not done.decision.promote and registry.current() == 1
    assert events(log) == ["judged"]
    assert log.entries()[0]["reasons"] == list(done.decision.reasons)


def test_a_service_decides_in_the_end(registry, held_out, log):
    tried = []

    def rollout(pair, texts):
        tried.append((pair.candidate, pair.current, len(texts)))
        return Decision(False, ("it fails",))

    done = promote(registry, 2, held_out, RULES, log, rollout)
    assert tried == [(2, 1, 16)]
    assert not done.decision.promote and registry.current() == 1  # moving it is the service's


def test_a_canary_that_was_begun_goes_on_without_being_judged_again(registry, held_out, log):
    first = promote(registry, 2, held_out, RULES, log, lambda *_: Decision(False, ("stopped",)))
    log.append("canary", first.pair.to_json())
    again = promote(registry, 2, held_out, RULES, log, lambda *_: Decision(True, ("good",)))
    assert again.decision.promote and again.verdict is None
    assert events(log) == ["judged", "canary"]


def test_a_run_that_was_killed_after_the_move_is_told_as_done(registry, held_out, log):
    pair = promote(registry, 2, held_out, RULES, log, lambda *_: Decision(False, ())).pair
    log.append("canary", pair.to_json())
    log.append("decided", pair.to_json() | Decision(True, ("good",)).to_json())
    registry.activate(2)
    assert promote(registry, 2, held_out, RULES, log).decision == Decision(True, ("good",))
    assert events(log)[-1] == "done"
    with pytest.raises(ConfigError, match="--candidate 2: is the current version already"):
        promote(registry, 2, held_out, RULES, log)
