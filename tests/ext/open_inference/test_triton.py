"""The client of Triton, as it is, asks a running service."""

import numpy as np
import pytest
from tritonclient import http as triton
from tritonclient.http.auth import BasicAuth
from tritonclient.utils import InferenceServerException

TEXTS = ["olive oil", "Ölüberschüsse"]


@pytest.fixture
def triton_client(server):
    with triton.InferenceServerClient(server.removeprefix("http://")) as client:
        yield client


def text_input(texts=TEXTS, *, shape=None, **options):
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
    found = triton_client.infer("longtail", text_input(), parameters={"k": 2}, request_id="mine")
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
