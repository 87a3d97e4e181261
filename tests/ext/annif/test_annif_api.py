"""The REST API of Annif, asked by hand."""

from typing import Any

import pytest
import requests
from annif_client import AnnifClient

from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.models.results import ScoredLabel
from longtail.service.feedback.store import FeedbackStore
from longtail.service.http.json_body import score_of

SUGGEST = "/v1/projects/longtail/suggest"
BATCH = "/v1/projects/longtail/suggest-batch"


def test_a_project_is_described_as_annif_does(open_client):
    with open_client(language="fi") as client:
        project = client.get("/v1/projects/longtail-2-sparse").json()
    assert project.pop("modification_time").endswith(("Z", "+00:00"))
    assert project == {
        "project_id": "longtail-2-sparse",
        "name": "Longtail version 2, sparse",
        "language": "fi",
        "backend": {"backend_id": "sparse"},
        "vocab": {"vocab_id": "longtail-2", "languages": ["fi"], "size": 8, "loaded": True},
        "vocab_language": "fi",
        "is_trained": True,
    }


def test_the_scorer_and_version_of_the_project_answer(open_client, make_loader):
    loader = make_loader()
    with open_client(loader, versions=("current", 1)) as client:
        for name in ("longtail-1", "longtail-sparse"):
            assert client.post(f"/v1/projects/{name}/suggest", data={"text": name}).is_success
        log = client.get("/metrics").text
    assert 'predict_duration_seconds_count{scorer="retrieval",version="1"} 1.0' in log
    assert 'predict_duration_seconds_count{scorer="sparse",version="2"} 1.0' in log


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ({"text": "a", "language": "xx"}, 'language "xx" not supported by vocabulary'),
        ({"limit": 2}, "/text: missing; add it"),
        ({"text": "a", "limit": "many"}, "/limit: "),
        ({"text": "a", "threshold": "nan"}, "/threshold: "),
        ({"text": "a\0"}, "NUL"),
    ],
)
def test_a_form_that_is_not_as_wanted_is_a_400(client, form, words):
    answer = client.post(SUGGEST, data=form)
    assert (answer.status_code, answer.json()["status"]) == (400, 400)
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert words in answer.json()["detail"]


def test_limits_of_the_service_hold(open_client):
    with open_client(max_k=5, max_texts_per_request=2, max_body_bytes=2000) as client:
        too_many = client.post(BATCH, json={"documents": [{"text": "a"}] * 3}, params={"limit": 1})
        too_long = client.post(SUGGEST, data={"text": "a" * 2000})
        too_deep = client.post(SUGGEST, data={"text": "a", "limit": 6})
    assert [x.status_code for x in (too_many, too_long, too_deep)] == [400, 413, 400]
    assert "limit is 6; expected 0 to 5" in too_deep.json()["detail"]


def test_scores_without_probability_become_their_sigmoid():
    scores = [score_of(ScoredLabel("a", "a", x, None)) for x in (-1e4, -1.0, 0.0, 1.0, 1e4)]
    assert scores == pytest.approx([0, 0.268941421, 0.5, 0.731058579, 1])
    assert scores == sorted(scores)


def test_a_password_may_be_the_key_but_not_for_admin(open_client, keys):
    (key, entry), (admin, admin_entry) = keys
    with open_client(api_keys=entry, admin_keys=admin_entry) as client:
        good = client.get("/v1/projects", auth=("anybody", key))
        bad = [
            client.get("/v1/projects", auth=("anybody", "wrong")),
            client.get("/v1/projects", headers={"Authorization": "Basic !"}),
            client.get("/v1/projects", headers={"Authorization": f"Other {key}"}),
            client.post("/v1/admin/rollback", auth=("anybody", admin)),
        ]
    assert good.status_code == 200
    assert [answer.status_code for answer in bad] == [401] * 4


def test_the_language_is_that_of_the_model_and_picks_the_names(
    open_client, make_loader, fake_predictor
):
    class German(fake_predictor):  # type: ignore[misc,valid-type]
        def __init__(self, bundle: Any) -> None:
            super().__init__(bundle)
            self.catalogue = LabelCatalogue(
                Label(x.id, f"Schild {x.id}", names={"de": f"Schild {x.id}", "en": x.name})
                for x in self.catalogue
            )

    with open_client(make_loader(predictor_class=German)) as client:
        project = client.get("/v1/projects/longtail").json()
        names = [
            client.post(SUGGEST, data={"text": "a", "limit": 1} | language).json()["results"][0]
            for language in ({}, {"language": "de"}, {"language": "en"})
        ]
        batch = client.post(
            BATCH, json={"documents": [{"text": "a"}]}, params={"language": "en", "limit": 1}
        )
        refused = client.post(SUGGEST, data={"text": "a", "language": "fr"})
    assert (project["language"], project["vocab_language"]) == ("de", "de")
    assert project["vocab"]["languages"] == ["de", "en"]
    assert [name["label"] for name in names] == ["Schild L0", "Schild L0", "Label 0"]
    assert batch.json()[0]["results"][0]["label"] == "Label 0"
    assert refused.status_code == 400


TEXTS = ["olive oil", "Ölüberschüsse"]


@pytest.fixture
def annif(server):
    return AnnifClient(f"{server}/v1/")


def test_annif_brings_a_key_as_password(open_server, keys):
    key, entry = keys[0]
    with open_server(api_keys=entry) as url:
        host = url.removeprefix("http://")
        with pytest.raises(requests.HTTPError, match="401"):
            len(AnnifClient(f"{url}/v1/").projects)
        assert AnnifClient(f"http://anybody:{key}@{host}/v1/").projects


def test_annif_gets_labels_of_documents(annif):
    documents = [{"text": text, "document_id": f"d{i}"} for i, text in enumerate(TEXTS)]
    found = annif.suggest_batch("longtail", documents, limit=1)
    assert [one["document_id"] for one in found] == ["d0", "d1"]
    assert [one["results"][0]["label"] for one in found] == ["Label 0"] * 2


def test_annif_teaches(open_server, tmp_path):
    folder = tmp_path / "feedback"
    subjects = [{"uri": "L1", "label": "Label 1"}, {"uri": "L3", "label": "Label 3"}]
    document = {"text": TEXTS[0], "subjects": subjects, "metadata": {"title": "Oil"}}
    with open_server(feedback=folder, feedback_texts=True) as server:
        annif = AnnifClient(f"{server}/v1/")
        assert annif.learn("longtail", [document]).status_code == 204
        with pytest.raises(requests.HTTPError, match="400"):
            annif.learn("longtail", [document | {"subjects": [{"uri": "none"}]}])
    with FeedbackStore(folder) as store:
        (record,) = store.page(0, 9)
    assert (record.content["text"], record.content["accepted"]) == (TEXTS[0], ["L1", "L3"])


LEARN = "/v1/projects/longtail/learn"
DOCUMENT = {
    "text": "olive oil",
    "subjects": [{"uri": "L1", "label": "Label 1"}, {"uri": "L2", "label": "x"}, {"uri": "L1"}],
    "metadata": {"title": "Oil"},
}


@pytest.fixture
def learning_client(open_feedback):
    with open_feedback() as learning_client:
        yield learning_client


def stored(learning_client):
    with FeedbackStore(learning_client.app.state.service.settings.feedback) as store:
        return [record.content for record in store.page(0, 9)]


def test_documents_are_kept_once_with_their_labels(learning_client):
    for _ in range(2):
        answer = learning_client.post(LEARN, json=[DOCUMENT, DOCUMENT | {"document_id": "d"}])
        assert (answer.status_code, answer.content) == (204, b"")
    first, second = stored(learning_client)
    assert first["accepted"] == ["L1", "L2"] and first["text"] == "olive oil"
    assert (first["document_id"], second["document_id"]) == (None, "d")
    assert first["version"] == 2


def test_an_unknown_subject_is_named_as_the_client_sent_it(learning_client):
    unknown = DOCUMENT | {"subjects": [{"uri": "none", "label": "x"}]}
    answer = learning_client.post(LEARN, json=[DOCUMENT, unknown])
    assert answer.status_code in (400, 422)
    assert answer.json()["detail"].startswith("1/subjects: version 2 has no label")
