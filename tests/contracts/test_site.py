"""The site of the documents is staged whole: each link leads to a page, each page is in a menu."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    spec = importlib.util.spec_from_file_location("build", ROOT / "docs" / "site" / "build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.STAGED = tmp_path_factory.mktemp("site") / "pages"
    module.stage()
    return module


def test_every_link_leads_to_a_file_of_the_site(build):
    broken = [
        (page.name, target)
        for page in build.STAGED.rglob("*.md")
        for target in re.findall(r"\]\((?![a-z]+:)([^)#]+)", page.read_text("utf-8"))
        if not (page.parent / target).exists()
    ]
    assert broken == []


def test_every_page_is_in_a_menu(build):
    listed = {build.STAGED / "index.md"}
    for index in build.STAGED.rglob("index.md"):
        for menu in re.findall(r"```{toctree}(.*?)```", index.read_text("utf-8"), re.DOTALL):
            listed |= {index.parent / f"{name}.md" for name in menu.split("\n\n")[1].split()}
    assert set(build.STAGED.rglob("*.md")) == listed


def test_a_page_that_fetches_from_another_host_is_found(build, tmp_path, monkeypatch):
    monkeypatch.setattr(build, "SITE", tmp_path)
    (tmp_path / "good.html").write_text('<a href="https://example.org">x</a><img src="a.png">')
    (tmp_path / "bad.html").write_text('<script defer src="https://cdn.example.org/x.js"></script>')
    assert build.pages_that_fetch() == ["bad.html"]
