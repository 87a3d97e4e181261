"""No default setting makes a corpus impossible, however small; what can't work is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from longtail.models.kinds.storage import read_parts
from longtail.models.predict.predictor import Predictor
from longtail.training.configuration.run import TrainingConfig

WORDS = (
    "council", "regulation", "commission", "article", "european", "community", "products", "member",
    "countries", "agreement",
)  # fmt: skip
"""Words that the tiny encoder knows."""


def write(folder: Path, **splits: list[dict[str, Any]]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, records in splits.items():
        lines = "".join(json.dumps(record) + "\n" for record in records)
        (folder / f"{name}.jsonl").write_text(lines)
    return folder


def documents(num_documents: int, num_labels: int, *, offset: int = 0) -> list[dict[str, Any]]:
    return [
        {
            "text": " ".join(WORDS[(number + step) % 10] for step in range(4)),
            "labels": [f"label {number % num_labels}", f"label {(number * 7 + 1) % num_labels}"],
        }
        for number in range(offset, offset + num_documents)
    ]


@pytest.fixture
def default_config(tiny_content):
    """Defaults but for the encoder, and for what takes time; the linear scorer's are its own."""
    kept = {name: tiny_content[name] for name in ("encoder", "document_max_tokens", "precision")}
    stage = {"epochs": 1}
    return TrainingConfig.model_validate(
        kept | {"descriptions": {"max_tokens": 12}, "classifier": stage, "retrieval": stage}
    )


@pytest.mark.slow
@pytest.mark.parametrize("num_labels", [1, 2, 3, 42, 256])
def test_corpora_of_few_labels_are_trained_with_all_scorers(
    num_labels, default_config, train_in, tmp_path, caplog
):
    train = documents(2 * num_labels + 1, num_labels)
    dev = [x | {"text": f"{x['text']} sea"} for x in documents(5, num_labels, offset=3)]
    corpus = write(tmp_path / "corpus", train=train, dev=dev)
    bundle = train_in(tmp_path, default_config, corpus).bundle
    assert len(bundle.catalogue) == num_labels
    there = tuple(x for x in default_config.scorers if x != "names")  # no text has a name
    assert bundle.manifest.scorers == there
    assert f"linear: {num_labels} labels have training documents, of which one doc" in caplog.text
    assert (
        "too few others for the default of 256 negatives a step; all labels are scored instead"
        in caplog.text
    )
    predictor = Predictor(read_parts(bundle))
    for scorer in predictor.scorers.names:
        (found,) = predictor.predict(["council regulation"], k=1, scorer=scorer)
        assert len(found.labels) == 1


ADAPTED = {
    "one document": (["alpha beta"], "sparse.min_document_count 1 instead of 2, sparse.max_docu"),
    "all texts differ": (["alpha beta", "gamma delta"], "sparse.min_document_count 1 instead of 2"),
    "all texts equal": (["alpha beta"] * 5, "sparse.max_document_share 1.0 instead of 0.7"),
    "letters alone": (["a", "b", "a b", "c"], "sparse.analyzer char instead of word"),
}


@pytest.mark.parametrize(("texts", "said"), ADAPTED.values(), ids=ADAPTED)
def test_bounds_of_tokens_give_way_where_none_is_left(
    texts, said, sparse_config, train_in, tmp_path, caplog
):
    train = [{"text": text, "labels": ["x"]} for text in texts]
    trained = train_in(tmp_path, sparse_config, write(tmp_path / "corpus", train=train))
    assert "no token is left with the default settings, so they are adapted: " in caplog.text
    assert said in caplog.text
    assert len(read_parts(trained.bundle).sparse.tfidf.tokens) > 0


_TREE = {"distribution": {"kind": "tree"}, "num_negatives": 2, "exclude": "none"}
_UNIFORM = {"distribution": {"kind": "uniform"}, "num_negatives": 2, "exclude": "none"}


@pytest.mark.parametrize(
    "linear",
    [
        {},
        {"negatives": _TREE | {"weighting": "constant"}, "loss": {"kind": "decoupled"}},
        {"negatives": _TREE | {"weighting": "importance"}},
        {"negatives": _UNIFORM | {"weighting": "constant"}, "loss": {"kind": "decoupled"}},
    ],
)
def test_negatives_of_the_linear_scorer_work_with_two_labels(
    linear, default_config, train_in, tmp_path
):
    content = default_config.model_dump(exclude={"linear"}) | {"linear": linear}
    content["scorers"] = ["retrieval", "linear", "sparse"]
    corpus = write(tmp_path / "corpus", train=documents(9, 2))
    train_in(tmp_path, TrainingConfig.model_validate(content), corpus)


def test_a_document_with_all_labels_leaves_the_default_something_to_draw(
    default_config, train_in, tmp_path
):
    train = documents(520, 260)
    train[0]["labels"] = [f"label {number}" for number in range(260)]
    content = default_config.model_dump(exclude={"linear"})
    content["scorers"] = ["retrieval", "linear", "sparse"]
    train_in(
        tmp_path, TrainingConfig.model_validate(content), write(tmp_path / "corpus", train=train)
    )


TEXTS = {
    "zh": (
        "新款手机支持快速充电", "手机电池续航很长", "这本小说讲述爱情故事", "作家出版了新的小说",
    ),
    "ja": (
        "新しい携帯電話は充電が速い", "携帯電話の電池が長持ち", "この小説は恋の物語",
        "作家が小説を出した",
    ),
    "th": (
        "โทรศัพท์รุ่นใหม่ชาร์จเร็ว", "โทรศัพท์แบตเตอรี่ทน", "นิยายเรื่องนี้เกี่ยวกับความรัก",
        "นักเขียนออกนิยายใหม่",
    ),
}  # fmt: skip
LABELS = ("phones", "phones", "novels", "novels")


def write_script(folder: Path, texts: tuple[str, ...]) -> Path:
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
    return train_in(tmp_path, sparse_config, write_script(tmp_path / "corpus", texts))


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
