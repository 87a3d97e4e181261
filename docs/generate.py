"""Writes docs/reference/surface.md, or reports it as stale; fills the reference pages of the site.

python docs/generate.py            # writes docs/reference/surface.md
python docs/generate.py --check    # writes nothing; status 1 where it is stale

The other pages of docs/reference have a part between two comments, `<!-- generated: NAME -->` and
`<!-- end -->`, which `make docs` replaces in the site by what the code says (see `filled`).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the code beside these pages, not an installed one

from docs.generation import (  # noqa: E402
    commands,
    configuration,
    errors,
    python,
    service,
    surface,
)

SURFACE = ROOT / "docs" / "reference" / "surface.md"
PARTS: dict[str, Callable[[], str]] = {
    "commands": commands.render,
    "configuration": configuration.render,
    "errors": errors.render,
    "http": service.routes,
    "metrics": service.metrics,
    "python": python.render,
    "settings": service.settings,
}
_PART = re.compile(r"<!-- generated: (\w+) -->\n.*?<!-- end -->", re.DOTALL)


def filled(page: str) -> str:
    """Return a page with its generated part, if it has one.

    Raises:
        KeyError: No part has the name.
    """
    return _PART.sub(lambda part: PARTS[part[1]](), page)


def main() -> int:
    """Write or check the surface; return the exit status."""
    text = surface.render()
    if SURFACE.read_text(encoding="utf-8") == text:
        return 0
    is_check = "--check" in sys.argv[1:]
    verb = "stale; run python docs/generate.py" if is_check else "written"
    print(f"{SURFACE.relative_to(ROOT)}: {verb}")
    if not is_check:
        SURFACE.write_text(text, encoding="utf-8")
    return int(is_check)


if __name__ == "__main__":
    sys.exit(main())
