"""The Open Inference Protocol, asked by hand."""

import json
import struct

import numpy as np
import pytest
from tritonclient import http as triton
from tritonclient.http.auth import BasicAuth
from tritonclient.utils import InferenceServerException

INFER = "/v2/models/longtail/infer"


def text_input(*texts: str, **changes):
    return {"name": "text", "datatype": "BYTES", "shape": [len(texts)], "data": texts} | changes


def ask(client, *texts: str, outputs=None, path=INFER, **parameters):
    body = {"inputs": [text_input(*texts)], "parameters": parameters}
    return client.post(path, json=body | ({"outputs": outputs} if outputs else {}))


def tensors(answer):
    return {output["name"]: output for output in answer.json()["outputs"]}


def test_health_needs_no_key_and_the_rest_does(open_client):
    with open_client(api_keys="a:" + "0" * 64) as client:
        assert client.get("/v2/health/ready").status_code == 200
        refused = [client.get("/v2"), ask(client, "a"), client.get("/v2/models/longtail/ready")]
    assert [answer.status_code for answer in refused] == [401] * 3
    assert all(answer.json()["error"] for answer in refused)


def test_the_outputs_hold_what_predict_answers(client):
    found = tensors(ask(client, "olive", "imports of olive oil", k=3, scorer="sparse"))
    body = {"texts": ["olive", "imports of olive oil"], "k": 3, "scorer": "sparse"}
    results = client.post("/v1/predict", json=body).json()["results"]
    labels = [label for result in results for label in result["labels"]]
    assert found["label_ids"]["data"] == [label["id"] for label in labels]
    assert found["label_names"]["data"] == [label["name"] for label in labels]
    assert found["scores"]["data"] == [label["score"] for label in labels]
    assert np.allclose(found["probabilities"]["data"], [x["probability"] for x in labels])
    assert [found[name]["shape"] for name in ("label_ids", "num_tokens")] == [[2, 3], [2]]
    assert found["num_tokens"]["data"] == [result["num_tokens"] for result in results]
    assert found["truncated"]["data"] == [False, False]
    assert found["exact"]["data"] == [result["exact"] for result in results]


def test_binary_tensors_go_both_ways(client):
    texts = ["olive oil", "ölive"]
    binary = b"".join(struct.pack("<I", len(t.encode())) + t.encode() for t in texts)
    tensor = text_input(*texts, shape=[2, 1], parameters={"binary_data_size": len(binary)})
    del tensor["data"]
    wanted = [
        {"name": "scores", "parameters": {"binary_data": True}},
        {"name": "label_ids", "parameters": {"binary_data": True}},
        {"name": "num_labels"},
    ]
    header = json.dumps({"inputs": [tensor], "outputs": wanted, "parameters": {"k": 2}}).encode()
    answer = client.post(
        INFER,
        content=header + binary,
        headers={"Inference-Header-Content-Length": str(len(header))},
    )
    length = int(answer.headers["Inference-Header-Content-Length"])
    scores, ids, counts = json.loads(answer.content[:length])["outputs"]
    assert answer.headers["Content-Type"] == "application/octet-stream"
    size = scores["parameters"]["binary_data_size"]
    rest = answer.content[length:]
    assert np.frombuffer(rest[:size], "<f4").tolist() == [9, 8, 5, 4]
    assert rest[size:] == b"\x02\0\0\0L0\x02\0\0\0L1" * 2
    assert (ids["parameters"]["binary_data_size"], counts["data"]) == (len(rest) - size, [2, 2])


def without_data(**parameters):
    return {"name": "text", "datatype": "BYTES", "shape": [1], "parameters": parameters}


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"inputs": [text_input("a", name="query")]}, "/inputs/0/name"),
        ({"inputs": [text_input("a", datatype="FP32")]}, "/inputs/0/datatype"),
        ({"inputs": [text_input("a", shape=[2])]}, "shape [2] and 1 values"),
        ({"inputs": [text_input("a", data=[5])]}, "/texts/0: got 5"),
        ({"inputs": [text_input("a", parameters={"binary_data_size": 1})]}, "binary_data_size"),
        ({"inputs": [text_input(" ")]}, "/texts/0: The text is empty"),
        ({"parameters": {"top_k": 5}}, "/parameters/top_k"),
        ({"parameters": {"k": 0}}, "/parameters/k: got 0"),
        ({"parameters": {"scorer": "magic"}}, "unknown scorer 'magic'"),
        ({"parameters": {"timeout": 10**400}}, "/parameters/timeout"),
        ({"outputs": [{"name": "label"}]}, "no output 'label'"),
    ],
)
def test_a_request_that_is_not_as_wanted_is_a_400_that_says_where(client, change, word):
    answer = client.post(INFER, json={"inputs": [text_input("a")]} | change)
    assert (answer.status_code, answer.json()["status"]) == (400, 400)
    assert word in answer.json()["error"]


@pytest.mark.parametrize(
    ("binary", "tensor", "word"),
    [
        (b"\x01\0\0\0a", without_data(binary_data_size=4), "5 bytes follow"),
        (b"\x02\0\0\0a", without_data(binary_data_size=5), "ends behind the body"),
        (b"\x01\0", without_data(binary_data_size=2), "ends behind the body"),
        (b"\x01\0\0\0\xff", without_data(binary_data_size=5), "UTF-8"),
        (bytes(400), without_data(binary_data_size=400), "more than 64 texts"),
    ],
)
def test_binary_texts_that_are_not_as_wanted_are_a_400(client, binary, tensor, word):
    header = json.dumps({"inputs": [tensor]}).encode()
    headers = {"Inference-Header-Content-Length": str(len(header))}
    answer = client.post(INFER, content=header + binary, headers=headers)
    assert answer.status_code == 400
    assert word in answer.json()["error"]


TEXTS = ["olive oil", "Ölüberschüsse"]


@pytest.fixture
def triton_client(server):
    with triton.InferenceServerClient(server.removeprefix("http://")) as client:
        yield client


def triton_texts(texts=TEXTS, *, shape=None, **options):
    values = np.array([text.encode() for text in texts], dtype=np.object_)
    values = values.reshape(shape or [len(texts)])
    tensor = triton.InferInput("text", list(values.shape), "BYTES")
    return [tensor.set_data_from_numpy(values, **options)]


def strings(result, name):
    return [[value.decode() for value in row] for row in result.as_numpy(name)]


def test_triton_sees_a_server_and_a_model_that_are_ready(triton_client):
    assert triton_client.is_server_live()
    assert triton_client.is_server_ready()
    assert triton_client.is_model_ready("longtail")
    assert triton_client.is_model_ready("longtail", "2")
    assert not triton_client.is_model_ready("longtail", "1")
    assert triton_client.get_server_metadata()["extensions"] == ["binary_tensor_data"]
    assert triton_client.get_model_metadata("longtail")["versions"] == ["2"]


def test_triton_gets_labels_in_binary_tensors_as_it_asks_by_itself(triton_client):
    found = triton_client.infer("longtail", triton_texts(), parameters={"k": 2}, request_id="mine")
    assert strings(found, "label_ids") == [["L0", "L1"]] * 2
    assert strings(found, "label_names") == [["Label 0", "Label 1"]] * 2
    assert found.as_numpy("scores").tolist() == [[9, 8], [13, 12]]
    assert found.as_numpy("probabilities").tolist() == [[1, 0.5]] * 2
    assert found.as_numpy("num_tokens").tolist() == [2, 1]
    assert found.as_numpy("truncated").tolist() == [False, False]
    assert found.get_response()["id"] == "mine"


def test_triton_brings_a_key_as_password(open_server, keys):
    key, entry = keys[0]
    with open_server(api_keys=entry) as url:
        host = url.removeprefix("http://")
        with triton.InferenceServerClient(host) as client:
            with pytest.raises(InferenceServerException, match="Send a valid key"):
                client.get_server_metadata()
            client.register_plugin(BasicAuth("anybody", key))
            assert client.get_server_metadata()["name"] == "longtail"
