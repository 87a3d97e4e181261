"""The page as it is served: its files, their headers, and what they must not hold."""

import re

import pytest

from longtail.service.http.api_keys import make_key
from longtail.service.routes.page import read_page

PAGE = read_page()
DOCS = read_page("api_docs")
SCRIPTS = sorted(name for name in PAGE if name.endswith(".js"))
MEDIA_TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


def text_of(name):
    return PAGE[name].content.decode("utf-8")


@pytest.mark.parametrize("name", sorted(PAGE))
def test_every_file_is_served_as_what_it_is(client, name):
    answer = client.get(f"/page/{name}")
    assert answer.content == PAGE[name].content
    assert answer.headers["content-type"] == MEDIA_TYPES[name.rpartition(".")[2]]
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "path", ["/page/", "/page/nothing.js", "/page/..%2Fapp.py", "/page/../page.py", "/page/a/b.js"]
)
def test_nothing_else_is_served(client, path):
    answer = client.get(path)
    assert answer.status_code == 404
    assert answer.json()["type"] == "urn:longtail:problem:not-found"


@pytest.mark.parametrize("path", ["/", "/page/app.js"])
def test_the_page_may_run_and_ask_nothing_but_this_service(client, path):
    policy = dict(
        part.strip().partition(" ")[::2]
        for part in client.get(path).headers["content-security-policy"].split(";")
    )
    assert policy["default-src"] == "'none'"
    assert {policy[kind] for kind in ("script-src", "style-src", "connect-src")} == {"'self'"}
    assert policy["require-trusted-types-for"] == "'script'"
    assert policy["trusted-types"] == "'none'"
    assert policy["frame-ancestors"] == "'none'"
    assert "unsafe" not in " ".join(policy.values())


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_never_turn_text_into_html_or_code(name):
    unsafe = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|srcdoc"
    assert not re.search(unsafe + r"|\beval\(|new Function", text_of(name))


def test_the_page_has_no_scripts_and_styles_of_its_own():
    page = text_of("index.html")
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", page)
    assert set(re.findall(r"<script[^>]*>(.*?)</script>", page, re.DOTALL)) == {""}


@pytest.mark.parametrize("name", sorted(PAGE))
def test_no_file_names_another_host(name):
    urls = re.findall(r"(?:https?:)?//[a-z][\w.-]*\.[a-z]+[^\s\"']*", text_of(name))
    assert set(urls) <= {"http://www.w3.org/2000/svg"}  # a name, which nobody fetches


def test_the_page_is_open_where_keys_are_wanted_and_its_questions_are_not(open_client):
    key, entry = make_key("reader")
    with open_client(api_keys=entry) as client:
        statuses = {path: client.get(path).status_code for path in ("/", "/page/app.js")}
        refused = client.get("/v1/models").status_code
        allowed = client.get("/v1/models", headers={"Authorization": f"Bearer {key}"}).status_code
    assert statuses == {"/": 200, "/page/app.js": 200}
    assert (refused, allowed) == (401, 200)


def test_the_page_of_the_api_loads_nothing_from_other_hosts(client):
    page = client.get("/docs")
    loaded = re.findall(r'(?:href|src)="([^"]+)"', page.text)
    assert {f"docs/{name}" for name in DOCS if name != "index.html"} <= set(loaded)
    assert {client.get(f"/{path}").status_code for path in loaded} == {200}  # relative: no host
    assert "://" not in page.text + DOCS["start.js"].content.decode()
    policy = page.headers["content-security-policy"]
    assert "http" not in policy and "unsafe" not in policy
    assert not re.search(r"<script[^>]*>[^<]|<style|\sstyle=", page.text)
    assert client.get("/redoc").status_code == 404
