"""The page in headless Chromium, driven over the WebDriver protocol (W3C, 2018)."""

import json
import shutil
import socket
import subprocess
import time
from csv import reader as csv_reader
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl

import httpx
import numpy as np
import pytest

from longtail.models.fitted.label_figures import LABEL_FIGURES, LabelFigures
from longtail.models.fitted.promises import PROMISES, BandRule, Promise
from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.models.labels.search import LabelSearch
from longtail.models.results import (
    AnswerWarning,
    BlendedScorer,
    FoundName,
    Keyword,
    LabelExplanation,
    NearLabel,
    ScoreExplanation,
    SimilarDocument,
    TokenContribution,
    TokenExplanation,
)
from longtail.service.errors import QueueFullError
from longtail.service.feedback.store import FeedbackStore
from longtail.service.http.api_keys import make_key
from longtail.service.offline.feedback import export_feedback

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
DRIVER = shutil.which("chromedriver")
HOSTILE = "<img src=x onerror=\"document.title='run'\">"
COUNTS = (500, 120, 40, 11, 9, 3, 1, 0)
PROMISE = Promise("precision", 0.95, 0.9, "retrieval", 200, (BandRule(0, (0.5,)),))
WARNING = AnswerWarning("unreliable-probabilities", "often too high", ("L7",))
KEYS = {
    "tab": "\ue004",
    "enter": "\ue007",
    "control": "\ue009",
    "right": "\ue014",
    "space": " ",
    "left": "\ue012",
    "down": "\ue015",
}

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
            "args": [
                "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
                "--disable-background-networking", "--disable-component-update", "--disable-sync",
                f"--user-data-dir={profile}",
            ],
        }  # fmt: skip
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

    def wait(self, expression: str) -> Any:
        """Return the value of an expression once it is one."""
        deadline = time.monotonic() + 30
        while not (value := self.run(f"return {expression}")):
            assert time.monotonic() < deadline, f"never true: {expression}"
            time.sleep(0.02)
        return value

    def press(self, *keys: str) -> None:
        """Press keys one after the other: names of `KEYS`, characters, or both with `+`."""
        steps = []
        for key in keys:
            held = [KEYS.get(part, part) for part in key.split("+")]
            steps += [{"type": "keyDown", "value": value} for value in held]
            steps += [{"type": "keyUp", "value": value} for value in reversed(held)]
        self._call("POST", "/actions", actions=[{"type": "key", "id": "keys", "actions": steps}])

    def emulate(self, command: str, **values: Any) -> None:
        """Send a command of the DevTools protocol."""
        self._call("POST", "/goog/cdp/execute", cmd=f"Emulation.{command}", params=values)

    def log(self) -> list[str]:
        """Return what the console says since the last look."""
        return [entry["message"] for entry in self._call("POST", "/se/log", type="browser")]

    def close(self) -> None:
        try:
            self._call("DELETE", "")
        finally:
            self._http.close()
            self._process.terminate()
            self._process.wait()


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    assert DRIVER is not None
    browser = Browser(DRIVER, tmp_path_factory.mktemp("profile"))
    try:
        yield browser
    finally:
        browser.close()


@pytest.fixture
def browser(chromium):
    # A window of a desktop, in light; at the end nothing may have broken the policy.
    chromium.emulate(
        "setDeviceMetricsOverride", width=1280, height=800, deviceScaleFactor=1, mobile=False
    )
    chromium.emulate("setEmulatedMedia", features=[scheme("light")])
    chromium.log()
    yield chromium
    assert [line for line in chromium.log() if "Policy" in line or "Uncaught" in line] == []
    chromium.open("about:blank")


@pytest.fixture
def page_loader(make_loader, fake_predictor):
    """Loads a predictor whose dial raises rare labels, one of which has a name that is HTML."""

    class Dialled(fake_predictor):  # type: ignore[misc,valid-type]
        def __init__(self, bundle: Any) -> None:
            super().__init__(bundle)
            names = [HOSTILE if i == 1 else f"Label {i}" for i in range(len(COUNTS))]
            self.catalogue = LabelCatalogue(
                Label(f"L{i}", name, training_count=COUNTS[i]) for i, name in enumerate(names)
            )
            self.label_search = LabelSearch(self.catalogue)

        def predict(self, texts: Any, *, k: int = 5, **options: Any) -> Any:
            if "too much" in texts[0]:
                raise QueueFullError("the queue is full; come back later", 7)
            found = super().predict(texts, k=len(COUNTS), scorer=options.get("scorer"))
            return [self._ranked(texts[0], each, k, options) for each in found]

        def _ranked(self, text: str, found: Any, k: int, options: dict[str, Any]) -> Any:
            dial = options.get("tail_dial", 0.0)
            step = 1 if options.get("scorer") == "sparse" else -1
            labels = [
                replace(
                    label,
                    score=float(step * label.index + 20 * dial * (COUNTS[label.index] < 10)),
                    probability=None if dial else label.probability,
                )
                for label in found.labels
            ]
            labels = sorted(labels, key=lambda label: -label.score)[:k]
            is_explained = options.get("explain", False)
            if is_explained:
                labels = [replace(x, explanation=explanation(text, x.index)) for x in labels]
            warnings = (WARNING,) if "doubtful" in text else ()
            return replace(found, labels=tuple(labels), warnings=warnings)

    return make_loader(predictor_class=Dialled)


@pytest.fixture
def page(browser, open_server, page_loader):
    with open_server(page_loader, max_text_characters=2000) as url:
        open_page(browser, url)
        yield browser


def explanation(text: str, index: int) -> LabelExplanation:
    start = text.find("oil")
    spans = ((start, start + 3),) if start >= 0 else ()
    return LabelExplanation(
        tokens=TokenExplanation((TokenContribution(HOSTILE, 0.5, spans),), rest=0.25, bias=-1.0),
        keywords=(Keyword(HOSTILE, 2.0),),
        nearest=(NearLabel("L1", HOSTILE, 0.75),),
        training_count=COUNTS[index],
        scores=(ScoreExplanation("retrieval", 1.0, base=0.5, correction=0.25, tail_dial=0.25),),
        name=FoundName(HOSTILE, is_own_name=False, manner="phrase", count=2, in_title=True),
        documents=(SimilarDocument(HOSTILE, similarity=0.5, share=0.75),),
        blend=(BlendedScorer("sparse", weight=1.5, contribution=-0.25),),
    )


def scheme(name: str) -> dict[str, str]:
    return {"name": "prefers-color-scheme", "value": name}


def open_page(browser: Browser, url: str) -> None:
    browser.open(url)
    browser.wait("document.querySelector('.scorer')?.options.length")


def ask(page: Browser, text: str) -> list[str]:
    """Write a text, as pasting does; returns the labels that come."""
    page.run("text.value = arguments[0]; go.click()", text)
    page.wait("document.querySelector('.result') && !document.querySelector('[aria-busy=true]')")
    return names(page)


def names(page: Browser, panel: int = 0) -> list[str]:
    found = "document.querySelectorAll('.panel')[arguments[0]].querySelectorAll('.name')"
    return page.run(f"return [...{found}].map((name) => name.textContent)", panel)


def change(page: Browser, selector: str, value: object, event: str) -> None:
    """Give the last element that a selector finds a value, as somebody would."""
    page.run(
        "const found = [...document.querySelectorAll(arguments[0])].at(-1);"
        "found.value = arguments[1]; found.dispatchEvent(new Event(arguments[2]))",
        selector,
        value,
        event,
    )


def turn_dial(page: Browser, value: float) -> None:
    change(page, ".tail-dial", value, "input")


def words(page: Browser, selector: str) -> str:
    return page.run("return document.querySelector(arguments[0]).textContent", selector)


def open_why(page: Browser) -> None:
    page.run("document.querySelector('.result-head').click()")


def test_labels_appear_with_bars_counts_and_words_for_screen_readers(page):
    assert ask(page, "Duties on olive oil")[:3] == ["Label 0", HOSTILE, "Label 2"]
    bars = page.run(
        "return [...document.querySelectorAll('.fill')]"
        ".map((fill) => fill.style.getPropertyValue('--share'))"
    )
    assert [float(bar) for bar in bars[:3]] == pytest.approx([1, 1 / 2, 1 / 3], abs=1e-3)
    counts = page.run("return [...document.querySelectorAll('.count')].map((x) => x.textContent)")
    assert counts[3:] == ["11 docs", "rare · 9 docs", "rare · 3 docs", "rare · 1 doc", "never seen"]
    assert page.run("return said.textContent") == "8 labels, 4 rare. First: Label 0, 100 %."
    assert page.run("return said.getAttribute('aria-live')") == "polite"


def bars(page: Browser) -> list[float]:
    """Return how wide the bars are drawn, in shares of their tracks."""
    return page.run(
        "return [...document.querySelectorAll('.fill')].map((fill) =>"
        "  fill.getBoundingClientRect().width / fill.parentElement.getBoundingClientRect().width)"
    )


def test_labels_of_a_text_without_a_known_word_do_not_look_like_an_answer(page):
    ask(page, "olive oil")
    assert words(page, ".cautions") == ""
    ask(page, "unknown")
    told = page.wait("document.querySelector('.cautions').textContent")
    assert "no word of this text" in told
    assert told in page.run("return said.textContent")
    page.run("document.getAnimations().forEach((each) => each.finish())")
    assert max(bars(page)) < 0.1
    page.run("clear.click()")
    assert words(page, ".cautions") == ""


def test_scores_are_named_and_have_no_bars_that_look_like_confidence(page):
    ask(page, "olive oil")
    assert words(page, ".value") == "100 %"
    turn_dial(page, 0.5)
    page.wait("document.querySelector('.value').textContent === 'score 6.00'")
    assert "no percentages" in words(page, ".cautions")
    page.run("document.getAnimations().forEach((each) => each.finish())")
    assert max(bars(page)) < 0.1
    turn_dial(page, 0)
    page.wait("document.querySelector('.value').textContent === '100 %'")
    assert words(page, ".cautions") == ""


def test_accepted_labels_come_first_and_a_line_says_which_to_check(
    browser, open_server, page_loader
):
    class Promising(page_loader.predictor_class):
        parts = SimpleNamespace(fitted={PROMISES.name: (PROMISE,)})

        def _ranked(self, text: str, found: Any, k: int, options: dict[str, Any]) -> Any:
            found = super()._ranked(text, found, k, options)
            if not options.get("accept"):
                return found
            is_likely = "olive" in text
            labels = [replace(x, accepted=is_likely and x.index == 2) for x in found.labels]
            reason = None if is_likely else "below-threshold"
            return replace(
                found, labels=tuple(labels), abstained=not is_likely, abstained_because=reason
            )

    page_loader.predictor_class = Promising
    with open_server(page_loader) as url:
        open_page(browser, url)
        ask(browser, "olive oil")
        lines = (
            "[...document.querySelectorAll('.line:not([hidden])')]"
            ".map((each) => [each.closest('.result').dataset.id, each.textContent])"
        )
        (accepted, promised), (other, check) = browser.run(f"return {lines}")
        assert (accepted, other) == ("L2", "L0")
        assert "promise “precision 0.95 overall”" in promised and "check" in check
        assert words(browser, ".rank") == "3"
        turn_dial(browser, 0.5)
        browser.wait("document.querySelector('.rank').textContent === '1'")
        assert "promise" not in str(browser.run(f"return {lines}"))
        ask(browser, "coal")
        turn_dial(browser, 0)
        browser.wait(f"{lines}.length === 1 && {lines}[0][1].includes('likely enough')")


def test_the_catalogue_shows_how_good_labels_are_and_the_worst_first(
    page, fake_predictor, monkeypatch
):
    counts = [np.full(len(COUNTS), 8) for _ in range(3)]
    counts[2] = np.arange(len(COUNTS))[::-1]
    monkeypatch.setitem(fake_predictor.parts.fitted, LABEL_FIGURES.name, LabelFigures(*counts))
    page.run("location.hash = '#labels'; location.reload()")
    page.wait("document.querySelector('#label-sort-field:not([hidden])')")
    change(page, "#label-sort", "precision", "change")
    page.wait("document.querySelector('#label-list .count')?.textContent.startsWith('precision')")
    first = f"Label {len(COUNTS) - 1}precision 0.0 % (0 to 32)"
    assert words(page, "#label-list li") == first
    page.run("document.querySelector('#label-list a').click()")
    page.wait("document.querySelector('#label-detail table')")
    assert "0 of 8" in words(page, "#label-detail table")


def test_probabilities_that_are_often_too_high_are_marked(page):
    ask(page, "doubtful")
    assert "too high?" in words(page, ".cautions")
    marked = page.run(
        "return [...document.querySelectorAll('.doubt:not([hidden])')]"
        ".map((each) => each.closest('.result').dataset.id)"
    )
    assert marked == ["L7"]
    ask(page, "olive oil")
    page.wait("!document.querySelector('.doubt:not([hidden])')")


def test_nothing_is_fetched_from_anywhere_else_and_no_text_is_kept(page):
    ask(page, "Duties on olive oil")
    urls = page.run("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    origin = page.run("return location.origin")
    assert urls
    assert all(url.startswith(origin + "/") and "olive" not in url for url in urls)
    assert "olive" not in page.run(
        "return JSON.stringify([{...localStorage}, {...sessionStorage}])"
    )


def test_the_dial_raises_rare_labels_and_says_how_far(page):
    before = ask(page, "Duties on olive oil")
    page.run("document.querySelector('[data-id=L6] button').focus()")
    turn_dial(page, 0.5)
    page.wait("document.querySelector('.move.up')")
    after = names(page)
    assert before[0] == "Label 0"
    assert after == [f"Label {i}" for i in (4, 5, 6, 7, 0)] + [HOSTILE, "Label 2", "Label 3"]
    assert words(page, ".move") == "▲ 4up 4"
    assert page.run("return document.activeElement.parentElement.dataset.id") == "L6"
    turn_dial(page, 0)
    page.wait("!document.querySelector('.move.up')")
    assert names(page) == before


def test_why_shows_words_in_the_text_and_never_as_html(page):
    ask(page, "😀 Duties on olive oil")
    open_why(page)
    assert page.run("return document.querySelector('.result-head').ariaExpanded") == "true"
    assert words(page, ".excerpt mark") == "oil"
    assert words(page, ".excerpt") == "😀 Duties on olive oil"
    assert words(page, ".why .chip").startswith(HOSTILE)
    assert page.run("return document.querySelectorAll('main img').length") == 0
    assert page.run("return document.title") == "Find labels · Longtail"
    open_why(page)  # closes it
    assert page.run("return document.querySelector('.why').hidden")


def test_all_can_be_done_with_keys(page):
    page.run("document.activeElement.blur()")
    for _ in range(20):
        page.press("tab")
        if page.run("return document.activeElement.id") == "text":
            break
    page.press(*"olive oil", "control+enter")
    page.wait("document.querySelector('.result') && !document.querySelector('[aria-busy=true]')")
    reached = []
    while "result-head" not in reached:
        page.press("tab")
        reached.append(
            page.run("return document.activeElement.id || document.activeElement.classList[0]")
        )
        shadow = "getComputedStyle(document.activeElement).outlineStyle"
        assert page.run(f"return {shadow}") != "none", reached
        if reached[-1] == "settings-open":
            page.press("enter")
        if reached[-1] == "tail-dial":
            page.press(*["right"] * 50)
            page.wait("document.querySelector('.move.up')")
    wanted = [
        "example",
        "file-open",
        "link-copy",
        "clear",
        "go",
        "k",
        "compare",
        "settings-open",
        "scorer",
        "tail-dial",
        "result-head",
    ]
    assert reached == wanted
    page.press("enter")
    page.wait("document.querySelector('.excerpt mark')")


def background(page: Browser) -> str:
    return page.run("return getComputedStyle(document.body).backgroundColor")


def test_a_key_is_asked_for_and_kept_for_this_tab_only(browser, open_server, page_loader):
    key, entry = make_key("reader")
    with open_server(page_loader, api_keys=entry) as url:
        browser.open(url)
        browser.wait("!notice.hidden && notice.querySelector('button')")
        assert "API key" in browser.run("return notice.innerText")
        browser.run("notice.querySelector('button').click()")
        browser.run("document.getElementById('key').focus()")
        browser.press(*key, "enter")
        browser.wait("document.querySelector('.scorer')?.options.length && notice.hidden")
        assert ask(browser, "Duties on olive oil")[0] == "Label 0"
        assert key in browser.run("return JSON.stringify({...sessionStorage})")
        assert key not in browser.run("return JSON.stringify({...localStorage}) + location.href")


def test_a_link_asks_the_question_again(page):
    ask(page, "Duties on olive oil & more = 5 %")
    change(page, ".scorer", "sparse", "change")
    turn_dial(page, 0.25)
    change(page, "#k", "5", "change")
    page.wait("document.querySelectorAll('.result').length === 5")
    before = names(page)
    link = page.run(
        "return import('./page/links.js').then(({ linkTo }) => linkTo({ text: text.value,"
        " k: k.value, scorer: 'sparse', tail_dial: '0.25' }))"
    )
    page.run("document.getElementById('link-copy').click()")
    page.wait("document.getElementById('link-copy').textContent !== 'Link'")
    shown = page.run("return document.getElementById('link').textContent")
    assert (
        dict(parse_qsl(shown.split("#ask?")[1])).items()
        >= dict(parse_qsl(link.split("#ask?")[1])).items()
    )
    page.open("about:blank")
    page.open(shown)
    page.wait("document.querySelectorAll('.result').length === 5")
    assert names(page) == before
    assert page.run("return text.value") == "Duties on olive oil & more = 5 %"
    assert page.run("return location.hash") == "#ask"


FILES = {
    "a.csv": 'id,title,content\r\nx,"Oil, ""olive""",Duties\r\ny,Fish,"Two\nlines"\r\nz,,\r\n',
    "b.csv": '\ufeffid;title;content\nx;Oil, ""olive"";Duties\ny;Fish;"Two\nlines"\nz;;\n',
    "c.jsonl": '{"id": "x", "text": "Oil"}\n\n{"id": "y", "text": "Fish"}\n'
    '{"id": "z", "text": " "}\n',
    "d.txt": "Oil\nFish\n",
}


def open_many(page: Browser, name: str, content: str) -> None:
    page.run("location.hash = '#many'")
    page.run(
        "const data = new DataTransfer(); data.items.add(new File([arguments[1]], arguments[0]));"
        "const input = document.getElementById('many-file'); input.files = data.files;"
        "input.dispatchEvent(new Event('change'))",
        name,
        content,
    )


@pytest.mark.parametrize("name", sorted(FILES))
def test_many_texts_get_labels_and_a_download(page, name):
    open_many(page, name, FILES[name])
    page.wait("!document.getElementById('many-start').disabled")
    page.run("document.getElementById('many-start').click()")
    page.wait("document.getElementById('many-said').textContent.includes('done')")
    csv = page.run(
        "const view = {}; const saved = URL.createObjectURL;"
        "URL.createObjectURL = (blob) => { view.blob = blob; return 'blob:x'; };"
        "HTMLAnchorElement.prototype.click = () => {};"
        "document.getElementById('many-download').click(); URL.createObjectURL = saved;"
        "return view.blob.text()"
    )
    delimiter = ";" if name == "b.csv" else ","
    lines = StringIO(csv.removeprefix("\ufeff"), newline="")
    (*header, _, _, _, _), *rows = csv_reader(lines, delimiter=delimiter)
    given = {"c.jsonl": ["id", "text"], "d.txt": ["text"]}
    assert header == given.get(name, ["id", "title", "content"])
    assert [row[len(header)].split("; ")[:2] for row in rows[:2]] == [["Label 0", HOSTILE]] * 2
    assert [row[len(header) + 1].split("; ")[0] for row in rows[:2]] == ["L0"] * 2
    if name.endswith(".csv"):
        assert rows[1][:3] == ["y", "Fish", "Two\nlines"]
        assert csv.count("\r\n") == (4 if name == "a.csv" else 0)
    if name != "d.txt":
        assert rows[-1][0] == "z" and rows[-1][-4:] == ["", "", "", "The text is empty"]
        assert "1 text without an answer" in words(page, "#many-said")
    assert len(page.run("return [...document.querySelectorAll('#many-rows tr')]")) == len(rows)


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.csv", "id,text\n1,a,b\n", "Row 2 has 3 cells; the header has 2."),
        ("a.csv", 'text\n"open\n', "A quote is left open"),
        ("a.jsonl", '{"text": "a"}\n[1]\n', "Line 2 is no JSON object"),
        ("a.csv", "", "The file is empty"),
    ],
)
def test_a_file_that_cannot_be_read_is_told(page, name, content, told):
    open_many(page, name, content)
    page.wait("!document.getElementById('many-problem').hidden")
    assert told in words(page, "#many-problem")
    assert page.run("return document.getElementById('many-start').disabled")


@pytest.fixture
def feedback_page(browser, open_server, page_loader, tmp_path):
    with open_server(page_loader, feedback=tmp_path / "feedback", feedback_texts=True) as url:
        open_page(browser, url)
        yield browser


def focus(page: Browser, selector: str) -> None:
    page.run("document.querySelector(arguments[0]).focus()", selector)


def pressed(page: Browser) -> list[str]:
    return page.run(
        "return [...document.querySelectorAll('.verdict [aria-pressed=true]')]"
        ".map((each) => each.getAttribute('aria-label'))"
    )


def test_labels_are_judged_and_added_with_the_keyboard_and_sent_once(feedback_page, tmp_path):
    page = feedback_page
    change(page, "#k", "5", "change")
    ask(page, "Duties on olive oil")
    page.wait("document.querySelectorAll('.result').length === 5")
    for label_id, key in (("L0", "a"), ("L2", "a"), ("L3", "a"), ("L2", "r"), ("L3", "a")):
        focus(page, f"[data-id={label_id}] .result-head")
        page.press(key)
    assert pressed(page) == ["Accept Label 0", "Reject Label 2"]
    focus(page, ".review input")
    for wanted in ("Label 6", "Label 4", "Goats"):  # the second is in the answer, the last nowhere
        page.press(*wanted)
        page.wait(f"document.querySelector('.found button')?.textContent.includes('{wanted}')")
        page.press("enter")
    assert words(page, ".chosen").startswith("Label 6 ")
    assert words(page, ".review .ask-row .muted") == "5 labels judged"
    focus(page, ".send")
    page.press("enter")
    page.wait("document.querySelector('.review').textContent.includes('Kept.')")
    assert page.run("return document.activeElement.id") == "text"
    assert pressed(page) == [] and page.run("return document.querySelector('.send').disabled")
    with FeedbackStore(tmp_path / "feedback") as store:
        (record,) = store.page(0, 9)
    given = ("text", "accepted", "rejected", "added", "proposed")
    said = {name: record.content[name] for name in given}
    assert said == {
        "text": "Duties on olive oil", "accepted": ["L0", "L4"], "rejected": ["L2"],
        "added": ["L6"], "proposed": [{"name": "Goats", "id": None}],
    }  # fmt: skip
    assert record.id.startswith("page-") and record.content["version"] == 2


@pytest.mark.parametrize(
    ("choice", "text"),
    [
        ("keep", "Duties on olive oils"),
        ("send", "Duties on olive oil"),
        ("drop", None),
        ("return", "Duties on olive oil"),
    ],
)
def test_what_was_judged_is_not_lost_with_its_text(feedback_page, tmp_path, choice, text):
    page = feedback_page
    ask(page, "Duties on olive oil")
    focus(page, "[data-id=L0] .accept")
    page.press("enter")
    turn_dial(page, 0.5)
    page.wait("document.querySelector('.move')?.textContent !== undefined")
    assert pressed(page) == ["Accept Label 0"]
    ask(page, "Duties on olive oils")
    assert page.run("return document.querySelector('.pending').checkVisibility()")
    assert page.run("return document.querySelector('.send').disabled")
    focus(page, "[data-id=L1] .result-head")
    page.press("r")
    assert pressed(page) == ["Accept Label 0"]
    if choice == "keep":
        page.run("document.querySelector('.keep').click()")
        page.run("document.querySelector('.send').click()")
    elif choice == "send":
        page.run("document.querySelector('.keep + button').click()")
    elif choice == "drop":
        page.run("document.querySelector('.drop').click()")
    else:
        page.run("clear.click()")
        assert page.run("return document.querySelector('.pending').checkVisibility()")
        assert words(page, ".chosen").startswith("Label 0 (accepted)")
        ask(page, "Duties on olive oil")
        assert page.run("return document.querySelector('.pending').hidden")
        page.run("document.querySelector('.send').click()")
    page.wait(
        "document.querySelector('.send').disabled && !document.querySelector('.keep + button')"
        ".checkVisibility() && document.querySelector('.chosen').children.length === 0"
    )
    if choice != "drop":
        page.wait("document.querySelector('.review').textContent.includes('Kept.')")
    assert pressed(page) == []
    with FeedbackStore(tmp_path / "feedback") as store:
        found = [(x.content["text"], x.content["accepted"]) for x in store.page(0, 9)]
    assert found == ([] if text is None else [(text, ["L0"])])


def seen(page: Browser) -> dict[str, list[str]]:
    """Return what the page shows as judged, by the names of the labels."""
    shown: dict[str, list[str]] = {"accepted": [], "rejected": [], "added": [], "proposed": []}
    for each in pressed(page):
        verb, name = each.split(" ", 1)
        shown[f"{verb.lower()}ed"].append(name)
    chips = page.run(
        "return [...document.querySelectorAll('.chosen button')].map((x) => x.textContent)"
    )
    for chip in chips:
        name, _, mark = chip[:-2].partition(" (")
        shown[{"new)": "proposed", "": "added"}.get(mark, mark.removesuffix(")"))].append(name)
    return {kind: sorted(found) for kind, found in shown.items()}


def verdict_button(page: Browser, kind: str, name: str) -> None:
    page.run("document.querySelector(`[aria-label='${arguments[0]}']`).click()", f"{kind} {name}")


def search(page: Browser, words: str) -> None:
    focus(page, ".review input")
    page.press(*words)
    page.wait(f"document.querySelector('.found')?.textContent.includes({words!r})")


def click_found(page: Browser, words: str, number: int = 0) -> None:
    search(page, words)
    page.run("document.querySelectorAll('.found button')[arguments[0]].click()", number)


def enter(page: Browser, words: str) -> None:
    """Type a name and press Enter at once, before the page has searched."""
    focus(page, ".review input")
    page.press(*words, "enter")
    page.wait(
        "!document.querySelector('.review input').value"
        " || document.querySelector('.hint').textContent"
    )


def nothing(**judged: list[str]) -> dict[str, list[str]]:
    return {"accepted": [], "rejected": [], "added": [], "proposed": []} | judged


JUDGED = {
    "accept": ([(verdict_button, "Accept", "Label 2")], nothing(accepted=["Label 2"])),
    "reject": ([(verdict_button, "Reject", "Label 2")], nothing(rejected=["Label 2"])),
    "accept after reject": (
        [(verdict_button, "Reject", "Label 2"), (verdict_button, "Accept", "Label 2")],
        nothing(accepted=["Label 2"]),
    ),
    "take back": (
        [(verdict_button, "Accept", "Label 0"), (verdict_button, "Accept", "Label 2"),
         (verdict_button, "Accept", "Label 2")],
        nothing(accepted=["Label 0"]),
    ),
    "add by a click": ([(click_found, "Label 6")], nothing(added=["Label 6"])),
    "add by Enter": ([(enter, "label 6")], nothing(added=["Label 6"])),
    "accept, and add the same by a click": (
        [(verdict_button, "Accept", "Label 2"), (click_found, "Label 2")],
        nothing(accepted=["Label 2"]),
    ),
    "accept, and add the same by Enter": (
        [(verdict_button, "Accept", "Label 2"), (enter, "Label 2")],
        nothing(accepted=["Label 2"]),
    ),
    "reject, and add the same by Enter": (
        [(verdict_button, "Reject", "Label 2"), (enter, "Label 2")],
        nothing(accepted=["Label 2"]),
    ),
    "add twice": ([(enter, "Label 6"), (enter, "Label 6")], nothing(added=["Label 6"])),
    "Enter at another name": (
        [(verdict_button, "Accept", "Label 2"), (enter, "Label")],
        nothing(accepted=["Label 2"]),
    ),
    "Enter at a name that nothing is like": ([(enter, "Goats")], nothing(proposed=["Goats"])),
    "propose by a click": (
        [(click_found, "Goats")],
        nothing(proposed=["Goats"]),
    ),
    "take back an added and a proposed label": (
        [(enter, "Label 6"), (enter, "Goats"), (enter, "Sheep"),
         (verdict_button, "Remove", "Label 6"), (verdict_button, "Remove", "Goats (new)")],
        nothing(proposed=["Sheep"]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", JUDGED)
def test_what_is_stored_is_what_is_seen(feedback_page, tmp_path, way):
    page = feedback_page
    change(page, "#k", "5", "change")
    ask(page, "Duties on olive oil")
    page.wait("document.querySelectorAll('.result').length === 5")
    steps, wanted = JUDGED[way]
    for step, *given in steps:
        step(page, *given)
    assert seen(page) == wanted
    assert stored(page, tmp_path) == wanted


def stored(page: Browser, folder: Path) -> dict[str, list[str]]:
    """Send the feedback; return what an export holds, by the names of the labels."""
    page.run("document.querySelector('.send').click()")
    page.wait("document.querySelector('.review').textContent.includes('Kept.')")
    with FeedbackStore(folder / "feedback") as store:
        export_feedback(store, folder / "out.jsonl")
    (line,) = (folder / "out.jsonl").read_text().splitlines()
    entry = json.loads(line)
    found = {
        kind: sorted(HOSTILE if x == "L1" else x.replace("L", "Label ") for x in entry[kind])
        for kind in ("accepted", "rejected", "added")
    }
    return {**found, "proposed": sorted(x["name"] for x in entry["proposed"])}


def test_a_label_that_moves_in_or_out_of_the_answer_has_one_verdict(feedback_page, tmp_path):
    page = feedback_page
    change(page, "#k", "5", "change")
    ask(page, "Duties on olive oil")
    page.wait("document.querySelectorAll('.result').length === 5")
    verdict_button(page, "Reject", "Label 3")
    enter(page, "Label 7")  # not in the answer, until the dial raises it
    turn_dial(page, 0.5)
    page.wait("document.querySelector('[data-id=L7]') && !document.querySelector('[data-id=L3]')")
    assert seen(page) == nothing(rejected=["Label 3"], added=["Label 7"])
    enter(page, "Label 3")
    enter(page, "Label 7")
    wanted = nothing(accepted=["Label 3", "Label 7"])
    assert seen(page) == wanted
    verdict_button(page, "Reject", "Label 7")
    wanted = nothing(accepted=["Label 3"], rejected=["Label 7"])
    assert seen(page) == wanted
    assert stored(page, tmp_path) == wanted


def test_enter_at_another_name_says_so_and_shows_the_choice(feedback_page):
    page = feedback_page
    page.emulate(
        "setDeviceMetricsOverride", width=900, height=500, deviceScaleFactor=1, mobile=False
    )
    ask(page, "Duties on olive oil")
    page.run("scrollTo(0, 0)")
    page.run("document.querySelector('.review input').scrollIntoView({ block: 'end' })")
    search(page, "Label")
    bottom = "document.querySelector('.found').getBoundingClientRect().bottom"
    page.wait(f"{bottom} <= innerHeight")
    page.press("enter")
    page.wait("document.querySelector('.hint').checkVisibility()")
    assert words(page, ".hint") == "No label is called “Label”. Choose below."
    assert page.run(f"return {bottom} <= innerHeight")
    assert seen(page) == nothing()
    assert page.run("return document.querySelector('.review input').value") == "Label"
    page.press(*" 6", "enter")
    page.wait(
        "!document.querySelector('.hint').textContent && !document.querySelector('.send').disabled"
    )
    assert seen(page) == nothing(accepted=["Label 6"])


def test_of_several_labels_with_the_typed_name_a_person_chooses(
    browser, open_server, page_loader, tmp_path
):
    class Twins(page_loader.predictor_class):
        def __init__(self, bundle: Any) -> None:
            super().__init__(bundle)
            self.catalogue = LabelCatalogue(
                Label(f"L{i}", "Mercury" if i > 5 else f"Label {i}") for i in range(len(COUNTS))
            )
            self.label_search = LabelSearch(self.catalogue)

    page_loader.predictor_class = Twins
    with open_server(page_loader, feedback=tmp_path / "feedback", feedback_texts=True) as url:
        open_page(browser, url)
        ask(browser, "olive oil")
        enter(browser, "mercury")
        assert words(browser, ".hint") == "Several labels are called “mercury”. Choose below."
        assert seen(browser) == nothing()


def test_the_text_field_has_one_ring_of_focus(page):
    focus(page, "#text")
    rings = page.run(
        "return [text, text.parentElement].map((each) => getComputedStyle(each))"
        ".map((style) => [style.outlineStyle, style.boxShadow.includes('0px 0px 0px 3px')])"
    )
    assert sum(outline != "none" for outline, _ in rings) + sum(x for _, x in rings) == 1
