"""Writes the reference pages that follow from the code, or says which of them are stale.

python docs/generate.py            # writes docs/reference/*.md
python docs/generate.py --check    # writes nothing; status 1 where a page is stale
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the code beside these pages, not an installed one

from docs.generation import (  # noqa: E402
    command_page,
    configuration_page,
    error_page,
    http_page,
    metric_page,
    python_page,
    setting_page,
    surface_page,
)

REFERENCE = ROOT / "docs" / "reference"
PAGES: dict[str, Callable[[], str]] = {
    "commands.md": command_page.render,
    "configuration.md": configuration_page.render,
    "errors.md": error_page.render,
    "http.md": http_page.render,
    "metrics.md": metric_page.render,
    "python.md": python_page.render,
    "settings.md": setting_page.render,
    "surface.md": surface_page.render,
}


def stale_pages(write: bool) -> list[str]:
    """Return the pages that are not what the code says now; write them where asked to."""
    stale = []
    for name, render in PAGES.items():
        path, text = REFERENCE / name, render()
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
            if write:
                path.write_text(text, encoding="utf-8")
    return stale


def main() -> int:
    """Write or check the pages; return the exit status."""
    is_check = "--check" in sys.argv[1:]
    stale = stale_pages(write=not is_check)
    verb = "stale; run python docs/generate.py" if is_check else "written"
    for name in stale:
        print(f"docs/reference/{name}: {verb}")
    return int(is_check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
