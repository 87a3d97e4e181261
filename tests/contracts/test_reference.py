"""The reference is made from the code: all that users can name is in it, and is described."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
from docs import generate  # noqa: E402
from docs.generation import surface  # noqa: E402
from docs.generation.commands import commands_of, whole_command  # noqa: E402


@pytest.fixture(scope="module")
def pages():
    """Return the reference pages of the site, by name."""
    found = sorted(generate.SURFACE.parent.glob("*.md"))
    return {page.stem: generate.filled(page.read_text("utf-8")) for page in found}


def test_the_surface_is_that_of_the_code():
    assert generate.SURFACE.read_text("utf-8") == surface.render(), "run python docs/generate.py"


def test_every_part_is_in_a_page(pages):
    text = "".join(page.read_text("utf-8") for page in generate.SURFACE.parent.glob("*.md"))
    assert set(re.findall(r"<!-- generated: (\w+) -->", text)) == set(generate.PARTS)
    assert not [name for name, page in pages.items() if "<!-- generated: " in page]


def commands() -> list[tuple[str, Any]]:
    return [*commands_of(whole_command(), "longtail")]
