"""Whose requests are answered: by the name in `Host`, and not with an upgrade and a body."""

import pytest

OTHERS = ["rebound.test", "rebound.test:8000", "127.0.0.1.example.org", "evil.org:80@127.0.0.1",
          "notlocalhost.org", "1.2.3.4.5", "[::1].evil.org",
          "evil.org#.localhost", "evil.org/.localhost", "[evil.org].localhost", "[localhost]",
          "evil.org\\.localhost", "a..localhost", ".localhost", "evil.org .svc", ""]  # fmt: skip
ENTRY = {"entries": [{"id": "a", "text": "a", "accepted": ["L1"]}]}


@pytest.mark.parametrize("host", OTHERS)
def test_other_names_are_refused_with_what_to_do(client, host):
    answer = client.get("/v1/models", headers={"Host": host})
    assert (answer.status_code, answer.json()["type"]) == (421, "urn:longtail:problem:other-host")
    assert "LONGTAIL_ALLOWED_HOSTS" in answer.json()["detail"]


def test_a_page_of_a_site_whose_name_is_rebound_stores_no_feedback(open_client, tmp_path):
    with open_client(feedback=str(tmp_path / "feedback")) as client:
        statuses = [
            client.post("/v1/feedback", json=ENTRY, headers={"Host": host}).status_code
            for host in ("rebound.test", "localhost")
        ]
    assert statuses == [421, 200]


@pytest.mark.parametrize(
    ("allowed", "host", "status"),
    [
        ("labels.example.org", "Labels.example.org:443", 200),
        ("labels.example.org", "x.labels.example.org", 421),
        ("a.org, *.example.org", "labels.example.org", 200),
        ("*.example.org", "badexample.org", 421),
        ("*", "rebound.test", 200),
    ],
)
def test_further_names_can_be_allowed(open_client, monkeypatch, allowed, host, status):
    monkeypatch.setenv("LONGTAIL_ALLOWED_HOSTS", allowed)
    with open_client() as client:
        assert client.get("/v1/models", headers={"Host": host}).status_code == status


def test_a_request_with_upgrade_and_a_body_is_refused(client):
    answer = client.post("/v1/predict", json={"text": "a"}, headers={"Upgrade": "h2c"})
    assert (answer.status_code, answer.headers["connection"]) == (400, "close")
    assert answer.json()["type"] == "urn:longtail:problem:upgrade-with-body"
