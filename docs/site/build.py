"""Builds the site of the documents: `make docs`, into `build/site`; a warning is an error.

    python docs/site/build.py

The pages are staged first, in `build/pages`: those of `docs/`, with their generated parts, and the
pages that are next to the code.
A link to a page of the site is kept, one to another file of the repository becomes its text, since
the site carries no code. The menu is what `docs/index.md` lists.
"""

from __future__ import annotations

import json
import os.path
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # the code beside these pages, not an installed one

from docs.generate import filled  # noqa: E402
from docs.generation.service import openapi  # noqa: E402

DOCS = ROOT / "docs"
STAGED = ROOT / "build" / "pages"
SITE = ROOT / "build" / "site"
IMPORTED = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "docker/README.md": "how-to/deploy.md",
    "service/OPERATIONS.md": "how-to/operate.md",
}
"""Pages beside the code, and where they are in the site."""
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)#\s]*)(#[^)\s]*)?\)")
_FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_FETCHED = re.compile(r"<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)=\"(?:https?:)?//[^>]*>")


def stage() -> None:
    """Write all pages and the pictures that they show to a folder, links pointing within it.

    Raises:
        FileNotFoundError: A link leads to nothing.
    """
    shutil.rmtree(STAGED, ignore_errors=True)
    places = {path: path.relative_to(DOCS) for path in sorted(DOCS.rglob("*.md"))}
    places |= {ROOT / name: Path(place) for name, place in IMPORTED.items()}
    texts = {path: filled(path.read_text(encoding="utf-8")) for path in places}
    places |= {path: path.relative_to(DOCS) for path in DOCS.rglob("*.html")}
    pictures = {picture for path, text in texts.items() for picture in _pictures(path, text)}
    places |= {picture: Path("figures") / picture.name for picture in pictures}
    for path, place in places.items():
        target = STAGED / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if path in texts:
            text = _relinked(texts[path], path, places)
            target.write_text(text + _menu(text, place), encoding="utf-8")
        else:
            shutil.copyfile(path, target)


def _relinked(text: str, source: Path, places: dict[Path, Path]) -> str:
    """Return a page with its links pointing at the places in the site; code stays as it is."""

    def replace(match: re.Match[str]) -> str:
        mark, label, target, anchor = match.groups()
        if not target or re.match(r"[a-z]+:", target):
            return match.group()
        path = _resolved(source, target)
        if path not in places:
            return str(label)
        relative = os.path.relpath(places[path], places[source].parent)
        return f"{mark}[{label}]({Path(relative).as_posix()}{anchor or ''})"

    parts, end = [], 0
    for fence in _FENCE.finditer(text):
        parts += [_LINK.sub(replace, text[end : fence.start()]), fence.group()]
        end = fence.end()
    return "".join([*parts, _LINK.sub(replace, text[end:])])


def _add_swagger_ui(folder: Path) -> None:
    """Write the page that the service has at /docs, with the document that it asks for."""
    shutil.copytree(ROOT / "service" / "api_docs", folder / "docs")
    shutil.copyfile(folder / "docs" / "index.html", folder / "index.html")
    (folder / "openapi.json").write_text(json.dumps(openapi()), encoding="utf-8")


def _menu(text: str, place: Path) -> str:
    """Return the menu that an index's lists of pages make, a part for each heading."""
    if place.name != "index.md":
        return ""
    parts = []
    for section in re.split(r"^## ", text, flags=re.MULTILINE):
        pages = re.findall(r"^(?:- |\| )\[[^\]]*\]\((\S+)\.md\)", section, re.MULTILINE)
        caption = section.splitlines()[0].lstrip("# ") if section.strip() else ""
        listed = "\n".join(pages)
        if pages:
            parts.append(f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{listed}\n```\n")
    return "".join(parts)


def _pictures(source: Path, text: str) -> Iterator[Path]:
    for mark, _, target, _ in _LINK.findall(text):
        if mark and not re.match(r"[a-z]+:", target):
            yield _resolved(source, target)


def _resolved(source: Path, target: str) -> Path:
    path = Path(os.path.normpath(source.parent / target))
    if not path.exists():
        raise FileNotFoundError(
            f"{source.relative_to(ROOT)}: the link to {target} leads to no file"
        )
    return path


def pages_that_fetch() -> list[str]:
    """Return the pages of the built site that ask another host for anything when they are read."""
    pages = sorted(SITE.rglob("*.html"))
    return [
        str(page.relative_to(SITE)) for page in pages if _FETCHED.search(page.read_text("utf-8"))
    ]


def main() -> int:
    """Build the site; return the exit status."""
    stage()
    shutil.rmtree(SITE, ignore_errors=True)
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    status = subprocess.call([*command, "-c", str(DOCS / "site"), str(STAGED), str(SITE)])
    _add_swagger_ui(SITE / "reference" / "api")
    if not status and (fetching := pages_that_fetch()):
        print(f"pages fetch from other hosts: {', '.join(fetching)}")
        return 1
    return status


if __name__ == "__main__":
    sys.exit(main())
