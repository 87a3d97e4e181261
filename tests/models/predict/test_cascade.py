"""`cascade`: every text gets, to the bit, the answer of the scorer that its rule names."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from longtail.models.bundle.bundle import open_bundle
from longtail.models.bundle.manifest import Calibration
from longtail.models.encoders import dual_encoder
from longtail.models.errors import BundleCorruptError, RequestError
from longtail.models.labels.filters import LabelFilter
from longtail.models.options import RankingOptions
from longtail.models.parts.model_parts import ModelParts
from longtail.models.parts.storage import read_parts, write_parts
from longtail.models.predict.predictor import Predictor
from longtail.models.scorers.aims import Aim
from longtail.models.scorers.calibration import log_odds_of
from longtail.models.scorers.cascade import CASCADE_NAME, CascadeRule, doubt

TEXTS = ["river law", "the steel trade and the milk tax", "fish " * 40, "nothing known here",
         "tax", "milk law river"]  # fmt: skip
NUM_LABELS = 7
BENT = Calibration(knots=(0.0,), slopes=(0.5, 1.5), intercept=-0.5)
RULE = CascadeRule(
    places=2, noise=0.4, most_doubt=0.5, max_loss=0.003, loss=0.0, loss_limit=0.002,
    first_share=0.5,
)  # fmt: skip
AIM = Aim(base=0.0, scale=1.0, offset=1.0, exponent=0.6, pivot=0.0)
OPTIONS = [
    {},
    {"k": 1},
    {"k": NUM_LABELS},
    {"k": 3, "tail_dial": 1.0},
    {"k": 3, "threshold": 0.4},
    {"k": 3, "aim": "precision"},
    {"k": 3, "aim": "coverage", "threshold": 0.2},
    {"k": 2, "label_filter": LabelFilter(exclude=("L1", "L3"))},
    {"k": 2, "explain": True},
]


@pytest.fixture(scope="module")
def cascaded(parts: ModelParts, constant_blend) -> ModelParts:
    names = ("retrieval", "sparse", "fast", "ensemble")
    fitted = {"rare_labels": AIM, "coverage": AIM, "propensity": AIM}
    return replace(
        parts,
        calibrations=dict.fromkeys(names, BENT),
        blends={
            "fast": constant_blend({"sparse": 1.0}),
            "ensemble": constant_blend({"retrieval": 0.8, "sparse": 0.5}),
        },
        aims=dict.fromkeys(names, fitted),
        cascade=RULE,
    )


@pytest.fixture(scope="module")
def predictor(cascaded: ModelParts) -> Predictor:
    return Predictor(cascaded, device="cpu")


@pytest.fixture(scope="module")
def stages(predictor: Predictor) -> list[str]:
    """The oracle: the scorer of each text, by the doubt about all labels that `fast` has."""
    ranking = predictor.rank(predictor.read(TEXTS), RankingOptions(k=NUM_LABELS, scorer="fast"))
    doubts = doubt(log_odds_of(BENT, ranking.scores), RULE.places, RULE.noise)
    found = ["fast" if each <= RULE.most_doubt else "ensemble" for each in doubts]
    assert len(set(found)) == 2
    return found


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_every_text_gets_the_answer_of_its_stage(predictor, stages, options):
    found = predictor.predict(TEXTS, scorer="cascade", **options)
    for stage in set(stages):
        rows = [row for row, own in enumerate(stages) if own == stage]
        wanted = predictor.predict([TEXTS[row] for row in rows], scorer=stage, **options)
        assert {each.stage for each in wanted} == {None}
        assert [found[row] for row in rows] == [replace(each, stage=stage) for each in wanted]


def test_rankings_and_scores_are_those_of_the_stages(predictor, stages):
    batch = predictor.read(TEXTS)
    predictor.encode(batch)  # the last bits of a vector depend on its batch
    found = predictor.rank(batch, RankingOptions(k=4, scorer="cascade"))
    scores = predictor.score(batch, found.labels, RankingOptions(scorer="cascade"))
    for row, stage in enumerate(stages):
        wanted = predictor.rank(batch, RankingOptions(k=4, scorer=stage))
        np.testing.assert_array_equal(found.labels[row], wanted.labels[row])
        np.testing.assert_array_equal(found.scores[row], wanted.scores[row])
        np.testing.assert_array_equal(scores[row], wanted.scores[row])


def test_explanations_name_the_blend_of_the_stage(predictor, stages):
    batch = predictor.read(TEXTS)
    labels = [[0, 1]] * len(TEXTS)
    found = predictor.explain(batch, labels, RankingOptions(scorer="cascade"))
    for stage, explanations in zip(stages, found, strict=True):
        blended = {"fast": ["sparse"], "ensemble": ["retrieval", "sparse"]}[stage]
        for each in explanations:
            assert sorted(part.scorer for part in each.evidence.blend) == blended
            assert "cascade" not in {part.scorer for part in each.scores}


def test_the_encoder_reads_the_texts_of_the_second_stage_alone(predictor, stages, monkeypatch):
    encode_all, lengths = dual_encoder.encode_all, []

    def counting(encoder, tokens, *args, **options):
        lengths.append(len(tokens))
        return encode_all(encoder, tokens, *args, **options)

    monkeypatch.setattr(dual_encoder, "encode_all", counting)
    predictor.predict(TEXTS, scorer="cascade")
    assert lengths == [stages.count("ensemble")]
    lengths.clear()
    predictor.predict([x for x, stage in zip(TEXTS, stages, strict=True) if stage == "fast"],
                      scorer="cascade")  # fmt: skip
    assert lengths == []


def test_what_a_cascade_can_be_asked(predictor):
    assert predictor.scorers[-1] == "cascade"
    assert not predictor.needs_encoder("cascade")
    assert predictor.gives_probabilities("cascade")
    assert predictor.correction_of("cascade") == "none"
    assert predictor.aims_of("cascade") == predictor.aims_of("fast")
    assert predictor.prepare(predictor.read(TEXTS), "cascade") == predictor.prepare(
        predictor.read(TEXTS), "fast"
    )
    assert "cascade" not in predictor.describe(0).scorers
    assert predictor.predict([], scorer="cascade") == []


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"k": NUM_LABELS + 1}, "k is 8; expected 1 to 7"),
        ({"correction": "tree"}, "correction is 'tree'"),
        ({"label_filter": LabelFilter(include=("nobody",))}, "nobody"),
    ],
)
def test_what_no_stage_can_answer_is_refused(predictor, options, told):
    with pytest.raises(RequestError, match=told):
        predictor.predict(TEXTS, scorer="cascade", **options)


def test_without_a_rule_there_is_no_cascade(cascaded):
    predictor = Predictor(replace(cascaded, cascade=None), device="cpu")
    assert "cascade" not in predictor.scorers
    with pytest.raises(RequestError, match="'cascade' is not in this bundle"):
        predictor.predict(TEXTS, scorer="cascade")


def test_other_blends_come_with_their_own_rule(predictor, cascaded):
    bare = predictor.with_blending(cascaded.calibrations, cascaded.blends)
    assert "cascade" not in bare.scorers
    always = replace(RULE, most_doubt=1e9)
    other = predictor.with_blending(cascaded.calibrations, cascaded.blends, cascade=always)
    assert {x.stage for x in other.predict(TEXTS, scorer="cascade")} == {"fast"}


@pytest.fixture
def folder(cascaded, manifest, tmp_path):
    said = replace(
        manifest,
        scorers=cascaded.scorers,
        calibrations=dict(cascaded.calibrations),
        blends=dict(cascaded.blends),
    )
    write_parts(tmp_path / "bundle", cascaded, said, tmp_path / "scratch")
    return tmp_path / "bundle"


def test_a_bundle_keeps_its_rule(folder, predictor):
    bundle = open_bundle(folder)
    assert read_parts(bundle).cascade == RULE
    loaded = Predictor.of_bundle(bundle, device="cpu")
    assert loaded.predict(TEXTS, scorer="cascade") == predictor.predict(TEXTS, scorer="cascade")


def test_a_rule_that_can_not_be_used_is_told(folder, lie, cascaded, tmp_path, manifest):
    lie(lambda content: content.update(scorers=[x for x in content["scorers"] if x != "cascade"]),
        folder)  # fmt: skip
    assert read_parts(open_bundle(folder)).cascade is None  # it is not asked for
    said = replace(manifest, scorers=(*manifest.scorers, "cascade"))
    write_parts(tmp_path / "odd", replace(cascaded, blends={}, calibrations={}, aims={}), said,
                tmp_path / "more")  # fmt: skip
    with pytest.raises(BundleCorruptError, match=f"{CASCADE_NAME} can't be used"):
        read_parts(open_bundle(tmp_path / "odd"))
