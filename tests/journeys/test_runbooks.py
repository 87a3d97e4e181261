"""The runbooks of the guides for operators, word for word, while clients use the service."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

import httpx
import pytest

from longtail.models.bundle.registry import Registry
from longtail.service.feedback.store import FILE_NAME, FeedbackStore
from longtail.service.http.api_keys import make_key

ROOT = Path(__file__).parents[2]
GUIDES = (ROOT / "service" / "OPERATIONS.md", ROOT / "docker" / "README.md")
PATIENCE_S = 300.0
PROBLEM = "urn:longtail:problem"

NOT_RUN = {
    "python tests/bench/": "measures for minutes; not a change of anything",
    "docker ": "needs Docker and images",
    "kubectl ": "needs a cluster; tests/docker checks the manifests",
    "python docker/lock.py": "asks a package index; tests/docker checks what it makes",
    "sh docker/pin-images.sh": "asks registries of images; tests/docker runs it",
    "cyclonedx-py ": "needs cyclonedx-bom; tests/docker runs it",
}
"""What a script begins with that can't be run here, and why."""


def scripts_of(guide: Path) -> list[str]:
    """Return the commands of each block of a guide, without the prompt and what they print."""
    blocks = re.findall(r"^```(sh|console)\n(.*?)^```", guide.read_text("utf-8"), re.M | re.S)
    return [text if kind == "sh" else without_answers(text) for kind, text in blocks]


def without_answers(session: str) -> str:
    commands = re.findall(r"^\$ ((?:.*\\\n)*.*\n)", session, re.M)
    return "".join(commands)


def reason_not_to_run(script: str) -> str | None:
    return next((why for start, why in NOT_RUN.items() if script.startswith(start)), None)


SCRIPTS = [each for guide in GUIDES for each in scripts_of(guide) if not reason_not_to_run(each)]
INLINE = re.findall(r"`(curl [^`]+)`", GUIDES[0].read_text("utf-8"))


class Clients:
    """Ask and judge all the time; keep what was acknowledged, and what was refused."""

    def __init__(self, url: str) -> None:
        self.acknowledged: list[str] = []
        self.refused: set[str] = set()
        self.statuses: set[int] = set()
        self._url = url
        self._numbers = count()
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=x) for x in (self._ask, self._judge)]

    def __enter__(self) -> Clients:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def wait_for_more(self) -> None:
        """Wait until more was acknowledged, beginning now."""
        wanted, deadline = len(self.acknowledged) + 3, time.monotonic() + PATIENCE_S
        while len(self.acknowledged) < wanted:
            assert time.monotonic() < deadline, self.refused
            time.sleep(0.01)

    def _ask(self) -> None:
        with httpx.Client(base_url=self._url, timeout=PATIENCE_S) as client:
            while not self._is_over.wait(0.02):
                self.statuses.add(client.post("/v1/predict", json={"text": "fish"}).status_code)

    def _judge(self) -> None:
        with httpx.Client(base_url=self._url, timeout=PATIENCE_S) as client:
            while not self._is_over.wait(0.02):
                entry = {"id": f"e{next(self._numbers)}", "proposed": [{"name": "mill"}]}
                entry["text"] = f"the text of {entry['id']}"
                answer = client.post("/v1/feedback", json={"entries": [entry]})
                if answer.status_code == 200:
                    self.acknowledged.append(entry["id"])
                else:
                    self.refused.add(answer.json()["type"])


class Site:
    """A folder with a registry, a store of feedback and a file of keys, and a service on them."""

    def __init__(self, folder: Path, url: str, key: str) -> None:
        self.folder = folder
        self.url = url
        self.key = key
        programs = folder / "programs"
        programs.mkdir()
        command = programs / "longtail"
        command.write_text(f'#!/bin/sh\nexec {sys.executable} -m longtail "$@"\n')
        command.chmod(0o755)
        self._path = f"{programs}:{os.environ['PATH']}"

    def run(self, script: str) -> str:
        """Run a script as a person would who pastes it; it and each answer in it are good."""
        environment = os.environ | {"PATH": self._path, "URL": self.url, "KEY": self.key}
        done = subprocess.run(
            ["/bin/bash", "-ec", script], cwd=self.folder, env=environment,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0 and PROBLEM not in done.stdout, (script, done)
        return done.stdout

    def status(self, key: str | None = None) -> int:
        """Return how an admin route answers a key."""
        headers = {"Authorization": f"Bearer {key or self.key}"}
        url = f"{self.url}/v1/admin/feedback?limit=1"
        return httpx.get(url, headers=headers, timeout=PATIENCE_S).status_code

    def wait_until_current_is(self, version: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            found = httpx.get(f"{self.url}/v1/models", timeout=PATIENCE_S).json()
            asked = [each["version"] for each in found["models"] if each["traffic_share"] == 1]
            if (asked, found["problem"]) == ([version], None):
                return
            assert time.monotonic() < deadline, found
            time.sleep(0.05)

    def stored(self, name: str = "feedback") -> set[str]:
        with FeedbackStore(self.folder / name, must_exist=True) as store:
            return {record.id for record in store.page(0, 10**6)}


@pytest.fixture
def site(place, train_in, tiny_config, tiny_corpus):
    trained = train_in(place / "work", tiny_config.without_encoder, tiny_corpus)  # with names
    shutil.rmtree(place / "registry")
    shutil.copytree(trained.registry.folder, place / "registry")
    key, entry = make_key("ops")
    (place / "admin-keys").write_text(f"{entry}\n")
    words = ["serve", "--port", "0", "--admin-keys-file", "admin-keys", "--drain-delay-s", "0"]
    words += ["--feedback", "feedback", "--feedback-texts", "--watch-interval-s", "0.2"]
    log = place / "service.log"
    with log.open("w", encoding="utf-8") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "longtail", *words, "--request-timeout-s", "300"],
            cwd=place, stderr=stderr,
        )  # fmt: skip
    try:
        while (found := re.search(r"running on (http://\S+:\d+)", log.read_text())) is None:
            assert process.poll() is None, log.read_text()
            time.sleep(0.1)
        site = Site(place, found[1], key)
        site.wait_until_current_is(1)
        yield site
    finally:
        process.terminate()
        process.wait()


def test_each_block_is_run_or_has_a_reason():
    reasons = {why for guide in GUIDES for x in scripts_of(guide) if (why := reason_not_to_run(x))}
    assert reasons == set(NOT_RUN.values()), "a reason that no block needs any more"
    assert len(SCRIPTS) == len(set(SCRIPTS)) >= 12


@pytest.mark.slow
def test_every_runbook_works_under_traffic_and_loses_nothing_acknowledged(site):
    with Clients(site.url) as clients:
        clients.wait_for_more()
        for script in SCRIPTS:
            steps = [step for start, step in STEPS.items() if script.startswith(start)]
            prepare, check = steps[0] if steps else (nothing, nothing)
            prepare(site)
            site.run(script)
            clients.wait_for_more()
            check(site)
        for line in INLINE:
            site.run(line)
        check_that_what_follows_a_damage_is_kept(site, clients)
    assert set(clients.acknowledged) <= site.stored()
    assert clients.statuses == {200}
    assert clients.refused <= {f"{PROBLEM}:feedback-store"}


def check_that_what_follows_a_damage_is_kept(site: Site, clients: Clients) -> None:
    """Damage the store, and do all but read it: what was exported or comes later is there."""
    export, import_ = (x for x in SCRIPTS if "last-export.jsonl" in x)
    (site.folder / "damaged").rename(site.folder / "damaged-before")
    exported = list(clients.acknowledged)
    site.run(export)
    with (site.folder / "feedback" / FILE_NAME).open("r+b") as file:
        file.write(b"no database" * 9)
    site.run(import_)
    between = len(clients.acknowledged)
    clients.wait_for_more()
    clients.acknowledged[:] = exported + clients.acknowledged[between:]


# ---- what a runbook is for, and what holds after it ----


def nothing(_: Site) -> None:
    pass


def current_is(version: int) -> Callable[[Site], None]:
    return lambda site: site.wait_until_current_is(version)


def activate_2(site: Site) -> None:
    Registry(site.folder / "registry").activate(2)
    site.wait_until_current_is(2)


def lose_versions(site: Site) -> None:
    (site.folder / "registry" / "registry.json").write_text("{")


def damage_version_2(site: Site) -> None:
    with (site.folder / "registry" / "2" / "labels.jsonl").open("ab") as file:
        file.write(b"x")


def both_keys_work(site: Site) -> None:
    told = (site.folder / "ops-new.txt").read_text()
    new = re.search(r"lt_\S+", told)[0]
    assert (site.status(), site.status(new)) == (200, 200)
    old, site.key = site.key, new
    assert old != new


def old_key_is_refused(site: Site) -> None:
    assert site.status() == 200
    assert "ops:" not in (site.folder / "admin-keys").read_text()


STEPS = {
    'longtail registry add-label 990001 "heat pump"': (nothing, current_is(2)),
    'curl -sX POST $URL/v1/admin/rollback -H "Authorization: Bearer $KEY"': (
        nothing, current_is(1),
    ),
    "longtail registry rollback": (activate_2, current_is(1)),
    "longtail registry activate 1": (activate_2, current_is(1)),
    "mkdir registry-damaged": (lose_versions, current_is(1)),
    "mv registry/2 damaged-2": (damage_version_2, activate_2),
    "(umask 077; longtail key ops-new > ops-new.txt)": (nothing, both_keys_work),
    "cp --preserve=mode admin-keys admin-keys.next": (nothing, old_key_is_refused),
}  # fmt: skip
"""By the start of a script: what makes it necessary, and what holds after it."""
