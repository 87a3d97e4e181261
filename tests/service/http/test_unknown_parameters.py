"""Parameters in a query that a route does not have are refused, not passed over in silence."""

import pytest


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        (
            "/v1/labels?limt=5&query=x",
            "expected query, limit, offset, version, sort, narrower_of, language, id",
        ),
        ("/v1/labels/L1?limt=5", "expected version"),
        ("/v1/label-sets?limt=5", "this path takes none"),
        ("/v1/models?limt=5", "this path takes none"),
    ],
)
def test_a_get_route_refuses_what_it_does_not_know(client, path, wanted):
    answer = client.get(path)
    assert answer.status_code == 422
    assert answer.json()["type"] == "urn:longtail:problem:invalid-body"
    assert answer.json()["errors"] == [
        {"pointer": "/query/limt", "detail": f"Unknown parameter; {wanted}"}
    ]


@pytest.mark.parametrize("path", ["/livez?x=1", "/readyz?x=1", "/metrics?name=y"])
def test_probes_and_scrapers_may_send_what_they_like(client, path):
    assert client.get(path).status_code == 200
