"""Label Studio's protocol, with what version 1.23 sends."""

import tracemalloc
from copy import deepcopy
from typing import Any

import pytest

from longtail.ext.label_studio.label_config import controls_of
from longtail.models.errors import RequestError
from longtail.service.feedback.store import FeedbackStore

CONFIG = """<View>
  <Text name="text" value="$text"/>
  <Choices name="quality" toName="text"><Choice value="good"/><Choice value="bad"/></Choices>
  <Taxonomy name="labels" toName="text" apiUrl="http://localhost:8000/label-studio/labels"/>
</View>"""
CHOICES = """<View><Text name="t" value="$body.text"/>
<Choices name="c" toName="t" choice="multiple" model_k="2" model_score_threshold="0.2">
<Choice value="Label 1"/><Choice value="third" alias="L3"/><View><Choice value="L6"/></View>
</Choices></View>"""
TAXONOMY = """<View><Text name="t" value="$text"/>
<Taxonomy name="c" toName="t"><Choice value="odd"><Choice value="Label 1"/>
<Choice value="more" alias="m"><Choice value="Label 3"/></Choice></Choice>
<Choice value="Label 2"><Choice value="Label 4"/></Choice></Taxonomy></View>"""
BOMB = '<View><Text name="t" value="{}"/><Taxonomy name="l" toName="t" apiUrl="x"/></View>'
PROJECT = {"id": 3, "created_at": "2026-03-01T10:00:00.123456Z", "label_config": CONFIG}


@pytest.fixture
def make_event():
    """Makes the event of an annotation by which these labels were chosen, of these predicted."""

    def make(
        chosen: list[str],
        predicted: list[str] | None = None,
        *,
        action: str = "ANNOTATION_CREATED",
        updated_at: str = "2026-03-02T09:00:00Z",
        config: str = CONFIG,
        **changes: Any,
    ) -> dict[str, Any]:
        annotation = {
            "id": 17,
            "task": 5,
            "project": 3,
            "completed_by": 1,
            "result": region(chosen),
            "was_cancelled": False,
            "updated_at": updated_at,
            "lead_time": 3.5,
            "prediction": {},
            "parent_prediction": None,
        }
        if predicted is not None:
            annotation["prediction"] = {
                "id": 9,
                "result": region(predicted),
                "model_version": "longtail-2",
                "created_ago": "1 minute",
            }
        return deepcopy(
            {
                "action": action,
                "annotation": annotation | changes,
                "task": {"id": 5, "data": {"text": "olive oil"}, "is_labeled": True},
                "project": PROJECT | {"label_config": config, "title": "Oil"},
            }
        )

    return make


def region(names: list[str]) -> list[dict[str, Any]]:
    return [
        {"id": "q", "from_name": "quality", "to_name": "text", "type": "choices",
         "value": {"choices": ["good"]}},
        {"id": "r", "from_name": "labels", "to_name": "text", "type": "taxonomy",
         "origin": "manual", "value": {"taxonomy": [[name] for name in names]}},
    ]  # fmt: skip


def setup_of(config):
    return {
        "project": "3.1772359200",
        "schema": config,
        "hostname": "http://localhost:8080",
        "access_token": "0123",
        "extra_params": None,
    }


def predict_of(config, *tasks):
    return {
        "tasks": [{"id": i, "data": data, "project": 3} for i, data in enumerate(tasks)],
        "project": "3.1772359200",
        "label_config": config,
        "params": {"login": None, "password": None, "context": None},
    }


def predict(client, config, *tasks):
    answer = client.post("/label-studio/predict", json=predict_of(config, *tasks))
    assert answer.status_code == 200, answer.text
    return answer.json()["results"]


def stored(client):
    """The entries that are not deleted, without what differs from run to run."""
    with FeedbackStore(client.app.state.service.settings.feedback) as store:
        records = store.page(0, 99)
    return [
        {name: record.content[name] for name in ("accepted", "rejected", "added")}
        for record in records
        if "deleted_at" not in record.content
    ]


@pytest.fixture
def keeping(open_feedback):
    with open_feedback() as client:
        yield client


def send(client, event):
    answer = client.post("/label-studio/webhook", json=event)
    assert answer.status_code == 200, answer.text
    return answer.json()["stored"]


def test_only_choices_are_predicted_as_the_control_says(client):
    (answer,) = predict(client, CHOICES, {"body": {"text": "abc"}})
    assert answer["result"][0]["value"] == {"choices": ["Label 1", "L3"]}
    single = CHOICES.replace('choice="multiple"', "")
    (answer,) = predict(client, single, {"body": {"text": "abc"}})
    assert answer["result"][0]["value"] == {"choices": ["Label 1"]}
    strict = CHOICES.replace("0.2", "0.9")
    assert predict(client, strict, {"body": {"text": "abc"}})[0]["result"] == []


def test_a_configuration_that_can_not_be_predicted_is_refused_and_logged(client, caplog):
    nested = CHOICES.replace("<View><Choice", '<Choices name="d" toName="t"><Choice')
    for config, word in (
        ("<View>", "not XML"),
        ("<!DOCTYPE x><View/>", "document type"),
        ("<View/>", "no <Choices>"),
        (CONFIG.replace('"$text"', '"text"'), "field of the task"),
        (CONFIG.replace('value="$text"', 'value="$text" valueType="url"'), "URL"),
        (CHOICES.replace("Label 1", "Label 9"), "'Label 9'"),
        (CHOICES.replace("L6", "L1"), "the same label"),
        (CHOICES.replace('name="c"', 'name="c" value="$options"'), "from the task"),
        (CHOICES.replace('model_k="2"', 'model_k="0"'), "model_k"),
        (CHOICES.replace("0.2", "2"), "model_score_threshold"),
        (TAXONOMY.replace("Taxonomy", "Choices"), "use <Taxonomy>"),
        (nested.replace("</View>\n", "</Choices>\n"), "inside of control"),
        ("<View>" + "<View>" * 99 + "</View>" * 100, "deep"),
        ("<View>" + "<a/>" * 110_000 + "</View>", "60000 tags"),
        ("<View " + "a='b' " * 110_000 + "/>", "60000 tags"),
        ("<View>" + " " * 2**20 + "</View>", "characters"),
        (BOMB.format("$a " * 500), "1000 characters"),
    ):
        answer = client.post("/label-studio/setup", json=setup_of(config))
        assert answer.status_code == 422, word
        assert word in answer.json()["detail"]
        assert word in caplog.text  # Label Studio does not show it


def test_feedback_is_what_was_kept_removed_and_added(keeping, make_event):
    event = make_event(["Label 1", "Label 3"], ["Label 1", "Label 2"])
    assert send(keeping, event) == 1
    assert send(keeping, event) == 0  # sent again
    assert stored(keeping) == [{"accepted": ["L1"], "rejected": ["L2"], "added": ["L3"]}]
    with FeedbackStore(keeping.app.state.service.settings.feedback) as store:
        (record,) = store.page(0, 9)
    assert record.content["text"] == "olive oil"
    assert record.content["version"] == 2


def test_labels_that_the_model_lacks_are_proposed_but_headings_are_not(keeping, make_event):
    send(keeping, make_event(["Label 1", "New label", "la…"], []))
    with FeedbackStore(keeping.app.state.service.settings.feedback) as store:
        (record,) = store.page(0, 9)
    assert record.content["proposed"] == [{"name": "New label", "id": None}]


def updated(make_event, chosen, minute, **changes):
    time = f"2026-03-02T10:{minute:02}:00.5+01:00"
    return make_event(chosen, ["L1"], action="ANNOTATION_UPDATED", updated_at=time, **changes)


def test_a_changed_annotation_takes_the_place_of_what_it_was(keeping, make_event):
    send(keeping, make_event(["Label 1"], ["L1"]))
    assert send(keeping, updated(make_event, ["Label 2"], 10)) == 1
    assert stored(keeping) == [{"accepted": [], "rejected": ["L1"], "added": ["L2"]}]
    assert send(keeping, updated(make_event, ["Label 3"], 5)) == 0  # came late
    assert send(keeping, updated(make_event, ["Label 1"], 20)) == 1  # as it was at first
    assert stored(keeping) == [{"accepted": ["L1"], "rejected": [], "added": []}]
    assert send(keeping, updated(make_event, [], 30, was_cancelled=True)) == 0
    assert stored(keeping) == []
    assert send(keeping, updated(make_event, ["Label 4"], 40)) == 1
    assert len(stored(keeping)) == 1


def test_of_a_deleted_annotation_nothing_is_left(keeping, make_event):
    send(keeping, make_event(["Label 1"], ["L1"]))
    deletion = {"action": "ANNOTATIONS_DELETED", "annotations": [{"id": 17}], "project": PROJECT}
    assert send(keeping, deletion) == 0
    assert send(keeping, updated(make_event, ["Label 1"], 50)) == 0
    assert stored(keeping) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"updated_at": "yesterday"},
        {"updated_at": "0001-01-01T00:00:00+05:00"},
        {"id": "x"},
        {"result": [{"from_name": "labels", "value": {"taxonomy": [[3]]}}]},
    ],
)
def test_an_annotation_that_can_not_be_read(keeping, make_event, changes):
    event = make_event(["Label 1"])
    event["annotation"] |= changes
    assert keeping.post("/label-studio/webhook", json=event).status_code == 422


def test_a_key_is_needed_where_the_service_has_keys(open_client, keys):
    key, entry = keys[0]
    with open_client(api_keys=entry) as client:
        for path in ("health", "labels"):
            assert client.get(f"/label-studio/{path}").status_code == 401
            assert client.get(f"/label-studio/{path}", auth=("studio", key)).status_code == 200
        for path in ("setup", "predict", "webhook"):
            assert client.post(f"/label-studio/{path}", json={}).status_code == 401


def refused(client, config, *tasks):
    answer = client.post("/label-studio/predict", json=predict_of(config, *tasks))
    assert answer.status_code == 422
    return answer.json()["detail"]


def test_a_text_that_a_template_makes_too_long_is_not_built(client):
    control = controls_of(BOMB.format("$a " * 100))[0]
    tracemalloc.start()
    with pytest.raises(RequestError, match="100000100 characters"):
        control.text_of({"a": "x" * 1_000_000}, 100_000)
    assert tracemalloc.get_traced_memory()[1] < 2**22
    tracemalloc.stop()
    assert "at most 100000" in refused(client, BOMB.format("$a " * 100), {"a": "x" * 10_000})


def test_the_texts_of_all_tasks_are_bounded_together(open_client):
    with open_client(max_body_bytes=20_000) as client:
        tasks = [{"a": "x" * 90}] * 30
        assert "20000 characters in all" in refused(client, BOMB.format("$a" * 10), *tasks)


def test_an_event_of_more_choices_than_feedback_has_is_refused(keeping, make_event):
    event = make_event([f"new {number}" for number in range(3001)])
    answer = keeping.post("/label-studio/webhook", json=event)
    assert answer.status_code == 422
    assert "3000 choices" in answer.json()["detail"]
