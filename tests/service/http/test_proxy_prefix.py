"""The service below a path of a proxy (`LONGTAIL_ROOT_PATH`), stripped by the proxy or not."""

import pytest

ROOT = "/our/labels"
STRIPPED, LEFT = "", ROOT


@pytest.fixture
def client(open_client):
    with open_client(root_path=ROOT) as client:
        yield client


@pytest.mark.parametrize("sent", [STRIPPED, LEFT], ids=["stripped", "left"])
def test_all_is_found_below_the_prefix(client, sent):
    for path in ("/livez", "/readyz", "/metrics", "/v1/models", "/v1/labels?id=L1", "/", "/docs"):
        assert client.get(sent + path).status_code == 200, path
    assert client.post(f"{sent}/v1/predict", json={"text": "a"}).status_code == 200
    lines = {"content-type": "application/x-ndjson"}
    for path in ("/v1/predict?k=1", "/v1/nothing"):
        problem = client.post(sent + path, json={"text": "a"}).json()
        assert problem["instance"] == ROOT + path.partition("?")[0]
    answer = client.post(f"{sent}/v1/batch", content=b'{"text": "a"}\n', headers=lines)
    assert b'"num_results": 1' in answer.content


@pytest.mark.parametrize("sent", [STRIPPED, LEFT], ids=["stripped", "left"])
def test_the_same_paths_want_a_key_below_a_prefix(open_client, keys, sent):
    (key, entry), _ = keys
    with open_client(root_path=ROOT, api_keys=entry) as client:
        for path in ("/livez", "/readyz", "/metrics", "/docs", "/openapi.json", "/"):
            assert client.get(sent + path).status_code == 200, path
        for path in ("/v1/models", "/v1/labels", "/livez/../v1/models", f"{ROOT}/v1/models"):
            assert client.get(sent + path).status_code in {401, 404}, path
        assert client.get(f"{sent}/v1/models").status_code == 401
        bearer = {"Authorization": f"Bearer {key}"}
        assert client.get(f"{sent}/v1/models", headers=bearer).status_code == 200
        assert client.post(f"{sent}/v1/admin/rollback", headers=bearer).status_code == 403
