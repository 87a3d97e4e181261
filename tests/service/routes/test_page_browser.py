"""The main path of the page in headless Chromium, driven over WebDriver (W3C, 2018)."""

import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.models.labels.search import LabelSearch
from longtail.service.feedback.store import FeedbackStore
from longtail.service.http.api_keys import make_key

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
DRIVER = shutil.which("chromedriver")
HOSTILE = "<img src=x onerror=\"document.title='run'\">"
KEYS = {"enter": "\ue007", "control": "\ue009"}
TEXT = "Duties on olive oil"

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        not (CHROMIUM and DRIVER), reason="needs Chromium and its driver (Debian: chromium-driver)"
    ),
]


class Browser:
    """A session of Chromium; as much of a WebDriver client as these tests need."""

    def __init__(self, driver: str, profile: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._process = subprocess.Popen([driver, f"--port={port}"], stdout=subprocess.DEVNULL)
        transport = httpx.HTTPTransport(retries=10)  # with growing pauses, until it listens
        self._http = httpx.Client(
            base_url=f"http://127.0.0.1:{port}", transport=transport, trust_env=False, timeout=60
        )
        options = {
            "binary": CHROMIUM,
            "args": ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"],
        }
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        self._session = ""
        started = self._call("POST", "/session", capabilities={"alwaysMatch": wanted})
        self._session = f"/session/{started['sessionId']}"

    def _call(self, method: str, path: str, **body: Any) -> Any:
        content = {"json": body} if method == "POST" else {}
        answer = self._http.request(method, self._session + path, **content)
        assert answer.status_code == 200, answer.text
        return answer.json()["value"]

    def open(self, url: str) -> None:
        self._call("POST", "/url", url=url)

    def run(self, script: str, *values: object) -> Any:
        return self._call("POST", "/execute/sync", script=script, args=list(values))

    def wait(self, expression: str) -> None:
        deadline = time.monotonic() + 30
        while not self.run(f"return {expression}"):
            assert time.monotonic() < deadline, f"never true: {expression}"
            time.sleep(0.02)

    def press(self, *keys: str) -> None:
        """Press keys one after the other: names of `KEYS`, characters, or both with `+`."""
        steps = []
        for key in keys:
            held = [KEYS.get(part, part) for part in key.split("+")]
            steps += [{"type": "keyDown", "value": value} for value in held]
            steps += [{"type": "keyUp", "value": value} for value in reversed(held)]
        self._call("POST", "/actions", actions=[{"type": "key", "id": "keys", "actions": steps}])

    def focus(self, selector: str) -> None:
        self.run("document.querySelector(arguments[0]).focus()", selector)

    def log(self) -> list[str]:
        """Return the messages of the console since the last call."""
        return [entry["message"] for entry in self._call("POST", "/se/log", type="browser")]

    def close(self) -> None:
        try:
            self._call("DELETE", "")
        finally:
            self._http.close()
            self._process.terminate()
            self._process.wait()


@pytest.fixture
def browser(tmp_path):
    assert DRIVER is not None
    browser = Browser(DRIVER, tmp_path / "profile")
    try:
        yield browser
        assert [line for line in browser.log() if "Policy" in line or "Uncaught" in line] == []
    finally:
        browser.close()


@pytest.fixture
def page_loader(make_loader, fake_predictor):
    """Loads a predictor of eight labels, one of which has a name that is HTML."""

    class EightLabels(fake_predictor):  # type: ignore[misc,valid-type]
        def __init__(self, bundle: Any) -> None:
            super().__init__(bundle)
            names = [HOSTILE if i == 1 else f"Label {i}" for i in range(8)]
            self.catalogue = LabelCatalogue(
                Label(f"L{i}", name, training_count=9 * i) for i, name in enumerate(names)
            )
            self.label_search = LabelSearch(self.catalogue)

    return make_loader(predictor_class=EightLabels)


def test_a_text_is_asked_judged_and_sent_with_keys_alone(
    browser, open_server, page_loader, tmp_path
):
    with open_server(page_loader, feedback=tmp_path / "feedback", feedback_texts=True) as url:
        browser.open(url)
        browser.wait("document.querySelector('.scorer')?.options.length")
        browser.run("k.value = '5'; k.dispatchEvent(new Event('change'))")
        browser.focus("#text")
        browser.press(*TEXT, "control+enter")
        browser.wait("document.querySelectorAll('.result').length === 5")
        names = browser.run(
            "return [...document.querySelectorAll('.name')].map((name) => name.textContent)"
        )
        assert names[:3] == ["Label 0", HOSTILE, "Label 2"]
        assert "First: Label 0" in browser.run("return said.textContent")
        assert browser.run("return document.querySelectorAll('main img').length") == 0
        for label_id, key in (("L0", "a"), ("L2", "a"), ("L3", "a"), ("L2", "r"), ("L3", "a")):
            browser.focus(f"[data-id={label_id}] .result-head")
            browser.press(key)
        browser.focus(".review input")
        for wanted in ("Label 6", "Goats"):  # the second is the name of no label
            browser.press(*wanted)
            found = "document.querySelector('.found button')?.textContent"
            browser.wait(f"{found}.includes('{wanted}')")
            browser.press("enter")
        browser.focus(".send")
        browser.press("enter")
        browser.wait("document.querySelector('.review').textContent.includes('Kept.')")
        urls = browser.run("return performance.getEntriesByType('resource').map((x) => x.name)")
        assert urls and all(each.startswith(url) and "olive" not in each for each in urls)
        assert "olive" not in browser.run(
            "return JSON.stringify([{...localStorage}, {...sessionStorage}])"
        )
    with FeedbackStore(tmp_path / "feedback") as store:
        (record,) = store.page(0, 9)
    wanted = {"text": TEXT, "accepted": ["L0"], "rejected": ["L2"], "added": ["L6"]}
    assert record.content.items() >= wanted.items()
    assert record.content["proposed"] == [{"name": "Goats", "id": None}]


def test_a_key_is_asked_for_and_kept_for_this_tab_only(browser, open_server, page_loader):
    key, entry = make_key("reader")
    with open_server(page_loader, api_keys=entry) as url:
        browser.open(url)
        browser.wait("!notice.hidden && notice.querySelector('button')")
        browser.run("notice.querySelector('button').click()")
        browser.focus("#key")
        browser.press(*key, "enter")
        browser.wait("document.querySelector('.scorer')?.options.length && notice.hidden")
        assert key in browser.run("return JSON.stringify({...sessionStorage})")
        assert key not in browser.run("return JSON.stringify({...localStorage}) + location.href")
