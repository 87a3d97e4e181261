"""Learning where names are enough in training: verdicts that contradict names are followed."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

import longtail
from longtail.ext.learn.heeding import Heeding
from longtail.models.bundle.registry import Registry
from longtail.models.kinds.storage import read_parts
from longtail.models.options import RankingOptions
from longtail.models.predict.predictor import Predictor

pytestmark = pytest.mark.slow

_THINGS = [
    a + b for a in ("Reise", "Garten", "Sport", "Bade") for b in ("tasche", "lampe", "matte")
]
_OTHERS = [a + b for a in ("wasser", "wind", "bruch", "stoß") for b in ("dicht", "fest", "arm")]
_OTHERS += [
    a + b for a in ("Leder", "Holz", "Kork", "Filz", "Glas", "Stahl") for b in ("griff", "boden")
]
_WORDS = "für jeden Tag im Freien und zu Hause mit viel Platz aus neuer Auflage in vielen Farben"
_SCORERS = ["sparse", "names", "neighbours", "ensemble"]


@dataclass(frozen=True)
class Shop:
    """A corpus of products whose tags stand in the texts, texts of further ones, and a model."""

    corpus: Path
    more: Sequence[tuple[str, list[str]]]
    registry: Path


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("shop"), random.Random(0)  # noqa: S311

    def product() -> tuple[str, list[str]]:
        tags = [rng.choice(_THINGS), *rng.sample(_OTHERS, 3)]
        words = rng.sample(_WORDS.split(), 6)
        return f"{', '.join(tags)} {' '.join(words)}", tags

    ids = [*_THINGS, *_OTHERS]
    names = [json.dumps({"id": x, "name": x}) for x in ids]
    (folder / "labels.jsonl").write_text("\n".join(names) + "\n", encoding="utf-8")
    for split, count in (("train", 240), ("dev", 60), ("test", 30)):
        documents = [product() for _ in range(count)]
        lines = [json.dumps({"text": text, "labels": labels}) for text, labels in documents]
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    longtail.train(folder, registry=folder / "registry", work=folder / "run", scorers=_SCORERS)
    return Shop(folder, [product() for _ in range(20)], folder / "registry")


@pytest.fixture
def feedback(shop, tmp_path):
    """A new tag on texts that have nothing else in common, and on each a tag that is rejected."""
    path = tmp_path / "feedback.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for number, (text, _) in enumerate(shop.more):
            wrong = [_OTHERS[5]] if _OTHERS[5] in text and number % 2 else []
            line = {"text": text, "proposed": [{"name": "Neuheit 2026"}], "rejected": wrong}
            file.write(json.dumps(line) + "\n")
    return path


def test_verdicts_that_names_contradict_are_followed_and_counted(shop, feedback, tmp_path):
    version = longtail.learn(feedback, shop.corpus, registry=shop.registry, work=tmp_path / "work")
    registry = Registry(shop.registry)
    assert registry.current() == version
    assert registry.open(1).manifest.blends["ensemble"].weights.keys() == {"names"}
    bundle = registry.open(version)
    judged = bundle.manifest.learned_from.judged
    assert judged["said"].texts == judged["said"].accepted == 20
    assert judged["before"].accepted == 0 < 18 <= judged["now"].accepted
    assert judged["now"].texts > judged["before"].texts == 0
    predictor = Predictor(read_parts(bundle), default_scorer=bundle.manifest.default_scorer)
    batch = predictor.read([text for text, _ in shop.more])
    new = bundle.catalogue.row_of_id("new:neuheit-2026")
    found = predictor.rank(batch, RankingOptions(k=5)).labels
    assert sum(new in row for row in found.tolist()) >= 18


def test_a_version_that_is_no_better_is_published_and_not_current(
    shop, feedback, tmp_path, caplog, monkeypatch
):
    """Blends that stay as they are can't follow the verdicts."""
    monkeypatch.setattr(Heeding, "blending", lambda _self, _dev, fitted: fitted)
    registry = Registry(shop.registry)
    registry.activate(1)
    version = longtail.learn(feedback, shop.corpus, registry=shop.registry, work=tmp_path / "work")
    learned = registry.open(version).manifest.learned_from
    assert not learned.is_better and version > 1 == registry.current()
    assert "judged texts" in caplog.text and f"registry activate {version}" in caplog.text
