"""Corpora in Chinese, Japanese and Thai: trained, explained, served, and said so in the log."""

import json
from pathlib import Path

import pytest

from longtail.models.kinds.storage import read_parts
from longtail.models.predict.predictor import Predictor

TEXTS = {
    "zh": (
        "新款手机支持快速充电",
        "手机电池续航很长",
        "这本小说讲述爱情故事",
        "作家出版了新的小说",
    ),
    "ja": (
        "新しい携帯電話は充電が速い",
        "携帯電話の電池が長持ち",
        "この小説は恋の物語",
        "作家が小説を出した",
    ),
    "th": ("โทรศัพท์รุ่นใหม่ชาร์จเร็ว", "โทรศัพท์แบตเตอรี่ทน", "นิยายเรื่องนี้เกี่ยวกับความรัก", "นักเขียนออกนิยายใหม่"),
}
LABELS = ("phones", "phones", "novels", "novels")


def write(folder: Path, texts: tuple[str, ...]) -> Path:
    folder.mkdir()
    for name, end in (("train", ""), ("dev", " !")):  # no split has a text of another
        lines = [
            json.dumps({"text": text + end, "labels": [label]}, ensure_ascii=False)
            for text, label in zip(texts, LABELS * (len(texts) // 4), strict=True)
        ]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(params=TEXTS)
def texts(request):
    return TEXTS[request.param]


@pytest.fixture
def run(texts, sparse_config, train_in, tmp_path):
    return train_in(tmp_path, sparse_config, write(tmp_path / "corpus", texts))


def test_it_is_trained_on_characters_and_the_log_says_so(run, texts, caplog):
    logged = "\n".join(record.getMessage() for record in caplog.get_records("setup"))
    assert (
        "train.jsonl: 100% of the letters are of scripts without spaces between words: " in logged
    )
    assert "(sparse.analyzer: char)" in logged
    bundle = run.bundle
    assert bundle.manifest.training["sparse"]["analyzer"] == "automatic"
    assert read_parts(bundle).sparse.tfidf.analyzer == "char"
    found = Predictor.of_bundle(bundle, device="cpu").predict([texts[0], texts[2]], k=1)
    assert [prediction.labels[0].name for prediction in found] == ["phones", "novels"]


def test_its_answers_are_explained_by_places_in_the_text(run, texts):
    (found,) = Predictor.of_bundle(run.bundle, device="cpu").predict([texts[1]], k=1, explain=True)
    tokens = found.labels[0].explanation.tokens.tokens
    assert tokens
    for token in tokens:
        assert {texts[1][start:stop] for start, stop in token.spans} == {token.token}
