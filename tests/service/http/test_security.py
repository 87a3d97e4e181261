"""Who is let in, and which headers browsers get."""

import hashlib
import hmac
import logging

import httpx
import pytest

from longtail.models.errors import ConfigError
from longtail.service.http import front
from longtail.service.http.api_keys import KeyRing, make_key
from longtail.service.http.security import client_of

ADMIN_ROUTES = [
    ("POST", "/v1/admin/models/1/load"), ("POST", "/v1/admin/models/1/unload"),
    ("POST", "/v1/admin/models/1/activate"), ("POST", "/v1/admin/rollback"),
    ("PUT", "/v1/admin/canary"), ("DELETE", "/v1/admin/canary"), ("GET", "/v1/admin/feedback"),
    ("DELETE", "/v1/admin/feedback"),
]  # fmt: skip
PUBLIC_ROUTES = ["/livez", "/readyz", "/metrics", "/docs", "/docs/start.js", "/openapi.json", "/",
                 "/page/app.js"]  # fmt: skip


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


def test_admin_routes_are_off_without_a_key(client):
    for method, path in ADMIN_ROUTES:
        answer = client.request(method, path, headers=bearer("anything"))
        assert answer.status_code == 403
        assert answer.json()["type"] == "urn:longtail:problem:admin-off"
        assert "longtail key" in answer.json()["detail"]


def test_whatever_looks_like_an_admin_route_wants_a_valid_key(open_admin):
    wrong = [{}, bearer("wrong"), bearer(""), {"Authorization": "Basic abc"}]
    alike = [("POST", path) for path in ("/v1/admin", "/proxy/v1/admin/rollback", "/v1/admin/no")]
    with open_admin() as client:
        del client.headers["Authorization"]
        for method, path in ADMIN_ROUTES + alike:
            for headers in [*wrong, {"Authorization": "Bearer"}]:
                answer = client.request(method, path, headers=headers)
                assert answer.status_code == 401
                assert answer.json()["type"] == "urn:longtail:problem:unauthorized"
                assert answer.headers["www-authenticate"].startswith("Bearer")


def test_an_admin_key_is_no_key_to_ask_and_the_other_way_round(open_client):
    (admin, admin_entry), (ask, ask_entry) = make_key("ops"), make_key("app")
    with open_client(admin_keys=admin_entry, api_keys=ask_entry) as client:
        statuses = [
            client.post(path, json={"text": "a"}, headers=bearer(key)).status_code
            for path in ("/v1/predict", "/v1/admin/rollback")
            for key in (ask, admin)
        ]
    assert statuses == [200, 401, 401, 200]


def test_with_keys_only_probes_metrics_and_documentation_are_public(open_client):
    _, entry = make_key("app")
    with open_client(api_keys=entry) as client:
        public = {path: client.get(path).status_code for path in PUBLIC_ROUTES}
        others = [
            client.get("/v1/models").status_code,
            client.get("/nothing").status_code,
            client.post("/v1/predict", json={"text": "a"}).status_code,
            client.post("/v1/batch", content=b"{}").status_code,
        ]
    assert 401 not in public.values()
    assert set(others) == {401}


def test_a_body_is_not_read_before_the_key(open_client):
    _, entry = make_key("app")
    with open_client(api_keys=entry, max_body_bytes=1024) as client:
        answer = client.post("/v1/predict", content=b"x" * 10**6)
    assert answer.status_code == 401


def test_the_log_names_who_asked_and_never_the_key(open_client, caplog):
    key, entry = make_key("app-7")
    with open_client(api_keys=entry) as client, caplog.at_level(logging.INFO):
        client.post("/v1/predict", json={"text": "secret"}, headers=bearer(key))
        client.post("/v1/predict", json={"text": "secret"}, headers=bearer("secret"))
    ours = "".join(r.getMessage() for r in caplog.records if r.name.startswith("longtail.service"))
    assert "key=app-7" in ours
    assert key not in ours
    assert "secret" not in ours


def test_every_answer_tells_browsers_to_be_careful(client):
    for path in ("/livez", "/v1/models", "/nothing", "/docs"):
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "http" not in headers["content-security-policy"]


ORIGIN = {"Origin": "https://a.example"}


def test_other_origins_are_not_let_in_by_default(client):
    assert "access-control-allow-origin" not in client.get("/v1/models", headers=ORIGIN).headers


@pytest.mark.parametrize(
    ("origins", "allowed"),
    [
        ("https://a.example, https://b.example", "https://a.example"),
        ("*", "*"),
        ("https://b.example", None),
    ],
)
def test_named_origins_may_ask(open_client, monkeypatch, origins, allowed):
    with open_client(cors_origins=origins, api_keys=make_key("app")[1]) as client:
        refused = client.get("/v1/models", headers=ORIGIN)
        preflight = client.options(
            "/v1/predict",
            headers=ORIGIN
            | {
                "Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": "authorization,content-type",
            },
        )
    assert refused.status_code == 401
    for answer in (refused, preflight):
        assert answer.headers.get("access-control-allow-origin") == allowed
    assert preflight.status_code == (200 if allowed else 400)


def request_of(address, key=None):
    headers = [] if key is None else [(b"authorization", f"Bearer {key}".encode())]
    return {"type": "http", "client": (address, 1), "headers": headers}


def test_clients_are_told_apart_by_their_keys_where_some_are_required(keys):
    (key, entry), (other, _) = keys
    ring = KeyRing("api", entry)
    names = [client_of(request_of("10.0.0.1", x), ring) for x in (key, other, None)]
    assert names == ["key one", "10.0.0.1", "10.0.0.1"]
    assert client_of(request_of("10.0.0.1", "made up"), KeyRing("api")) == "10.0.0.1"


@pytest.mark.parametrize(
    ("address", "expected"),
    [("2001:db8::1", "2001:db8::/64"), ("2001:db8::2:3", "2001:db8::/64"), ("x", "x"),
     ("2001:db8:0:1::1", "2001:db8:0:1::/64"), ("::ffff:10.0.0.1", "::ffff:10.0.0.1")],
)  # fmt: skip
def test_addresses_of_one_network_are_one_client(address, expected):
    assert client_of(request_of(address), KeyRing("api")) == expected


@pytest.mark.parametrize(("proxies", "expected"), [("", "127.0.0.1"), ("127.0.0.0/8", "9.9.9.9")])
def test_only_proxies_of_the_settings_say_who_the_client_is(
    open_server, monkeypatch, proxies, expected
):
    seen = []
    monkeypatch.setattr(front, "set_client", seen.append)
    monkeypatch.setenv("LONGTAIL_TRUSTED_PROXIES", proxies)
    with open_server() as url:
        httpx.get(f"{url}/v1/models", headers={"X-Forwarded-For": "9.9.9.9"})
    assert seen[-1] == expected


def test_a_made_key_is_let_in_by_its_entry_alone():
    key, entry = make_key("ops-1")
    assert entry == f"ops-1:{hashlib.sha256(key.encode()).hexdigest()}"
    ring = KeyRing("admin", entry)
    assert ring.name_of(key) == "ops-1"
    assert ring.name_of(key + "x") is ring.name_of("") is ring.name_of(entry) is None


def test_every_key_is_compared_in_constant_time(monkeypatch):
    compared = []

    def compare(one, other):
        compared.append((one, other))
        return one == other

    monkeypatch.setattr(hmac, "compare_digest", compare)
    key, first = make_key("a")
    KeyRing("api", f"{first},{make_key('b')[1]}").name_of(key)
    assert len(compared) == 2
    assert all(len(each) == 64 for pair in compared for each in pair)


@pytest.mark.parametrize(
    "text", ["secret-key", "a:123", f"a b:{'0' * 64}", f"a:{'G' * 64}", f"a:{'0' * 64}x"]
)
def test_a_malformed_entry_stops_the_start_and_is_not_repeated(tmp_path, text):
    path = tmp_path / "keys"
    path.write_text(f"{make_key('a')[1]}\n{text}\n")
    for make in (
        lambda: KeyRing("api", f"{make_key('x')[1]},{text}"),
        lambda: KeyRing("api", path=path),
    ):
        with pytest.raises(ConfigError, match="entry 2 is not NAME:SHA256") as why:
            make()
        assert text not in str(why.value)


def test_files_and_entries_that_can_not_be_used_stop_the_start(tmp_path):
    with pytest.raises(ConfigError, match="LONGTAIL_API_KEYS: two entries have the name 'a'"):
        KeyRing("api", f"{make_key('a')[1]},{make_key('a')[1]}")
    with pytest.raises(ConfigError, match="can't be read"):
        KeyRing("api", path=tmp_path / "none")
    (tmp_path / "keys").touch()
    assert KeyRing("api", path=tmp_path / "keys").is_configured
    assert not KeyRing("api").is_configured


@pytest.fixture
def rotating(tmp_path):
    """A file with one key, the ring that reads it, and what replaces the file's content."""
    key, entry = make_key("old")
    path = tmp_path / "keys"
    path.write_text(entry)

    def replace(content):
        incoming = path.with_name("incoming")
        incoming.write_bytes(content)
        incoming.replace(path)

    return key, path, KeyRing("api", path=path), replace


def test_a_changed_file_lets_new_keys_in_and_old_ones_no_more(rotating):
    old, _, ring, replace = rotating
    new, entry = make_key("new")
    replace(entry.encode())
    assert (ring.name_of(new), ring.name_of(old)) == ("new", None)
    replace(b"")
    assert ring.name_of(new) is None


@pytest.mark.parametrize("content", [b"nonsense", b"\xff"])
def test_a_changed_file_that_cannot_be_read_leaves_the_keys_and_says_so_once(
    rotating, caplog, content
):
    old, _, ring, replace = rotating
    replace(content)
    assert [ring.name_of(old) for _ in range(3)] == ["old"] * 3
    assert caplog.text.count("the keys stay as they were") == 1


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
