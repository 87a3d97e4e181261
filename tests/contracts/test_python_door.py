"""`import longtail` gives Python users all that they need, and costs next to nothing."""

import json

import pytest

import longtail
from longtail.models.errors import LongtailError


def test_every_public_name_is_there():
    assert [name for name in longtail.__all__ if getattr(longtail, name, None) is None] == []
    assert longtail.Predictor.__name__ == "Predictor"
    assert dir(longtail) == sorted(longtail.__all__)


def test_a_model_is_trained_loaded_and_evaluated(tmp_path, tiny_corpus):
    registry = tmp_path / "registry"
    options = {"registry": registry, "work": tmp_path / "work", "scorers": ["sparse"]}
    assert longtail.train(tiny_corpus, **options) == 1
    model = longtail.load(registry)
    (prediction,) = model.predict(["imports of olive oil"], k=3)
    assert prediction == longtail.load(registry / "1").predict("imports of olive oil", k=3)
    with pytest.raises(LongtailError, match=r"version is 7, but .* is one bundle"):
        longtail.load(registry / "1", 7)
    with pytest.raises(LongtailError, match="num_threads is 0; expected a whole number from 1"):
        longtail.load(registry, num_threads=0)
    with pytest.raises(LongtailError, match="index is 'hnsw'; expected one of auto, faiss, torch"):
        longtail.load(registry, index="hnsw")
    assert len(prediction.labels) == 3
    found = longtail.evaluate(tiny_corpus, registry=registry)
    assert "sparse" in found.rankings
    assert found.metrics == model.evaluate(tiny_corpus).metrics
    assert "<td>sparse</td>" in found._repr_html_() and "| sparse |" in repr(found)


def test_documents_in_memory_are_trained_on_and_measured(tmp_path, tiny_corpus, tiny_texts):
    lines = (tiny_corpus / "train.jsonl").read_text().splitlines()
    documents = [json.loads(line) for line in lines]
    data = [x["text"] for x in documents], [x["labels"] for x in documents]
    folders = {"registry": tmp_path / "registry", "work": tmp_path / "work"}
    assert longtail.train(data, scorers=["sparse"], **folders) == 1
    assert longtail.train(data, scorers=["sparse"], **folders) == 1
    model = longtail.load(folders["registry"])
    with pytest.raises(LongtailError, match="the documents, split 'test': got 60 of 60"):
        model.evaluate(data)
    new = [f"{text} again" for text in data[0]], data[1]
    assert model.evaluate(new).metrics["sparse"]["P@1"] > 0.9
    columns = {"text": new[0], "labels": new[1], "id": range(60)}
    frame = pytest.importorskip("pandas").DataFrame(columns)
    names = {"unseen": "a label without documents"}
    assert longtail.train(
        frame, scorers=["sparse"], label_texts=names,
        registry=folders["registry"], work=tmp_path / "other",
    ) == 2  # fmt: skip
    assert longtail.load(folders["registry"]).describe("unseen").label.name == names["unseen"]
    with pytest.raises(LongtailError, match="2 labels, all unknown to the model, such as 'new'"):
        model.evaluate((["one", "two"], [["new", "other"], ["new"]]))
    more = new[0], [[*labels, "new"] for labels in new[1]]
    unseen, known = (model.evaluate(data).metrics["sparse"] for data in (more, new))
    assert unseen["P@5"] == known["P@5"] and unseen["R@5"] < known["R@5"]
    found = model.evaluate(frame).to_frame()
    assert found["P@1"][0] == model.evaluate(new).metrics["sparse"]["P@1"]
    assert (
        "sparse"
        in longtail.evaluate(
            frame.assign(text=data[0]).drop(columns="id"),
            registry=folders["registry"],
            split="train",
        ).metrics
    )
