"""The reference is made from the code: all that users can name is in it, and is described."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from longtail.service.http.problem_handlers import HTTP_KINDS
from longtail.service.http.security import ADMIN_OFF, NO_KEY
from longtail.service.settings import describe_settings
from longtail.service.wire.problems import INTERNAL, INVALID, KINDS

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
from docs import generate  # noqa: E402
from docs.generation import surface  # noqa: E402
from docs.generation.commands import commands_of, whole_command  # noqa: E402
from docs.generation.configuration import keys_of, meaning_of, schemas  # noqa: E402
from docs.generation.service import named_metrics, openapi, operations  # noqa: E402


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


def test_every_name_is_in_the_reference(pages):
    problems = {*KINDS.values(), *HTTP_KINDS.values()}
    expected = {
        "commands": [f"## `{name}`" for name, _ in commands()],
        "configuration": [
            f"| `{name}` |" for _, schema in schemas() for name, _ in keys_of(schema)
        ],
        "errors": [
            f"| `{kind.slug}` | {kind.status} |"
            for kind in {*problems, INVALID, INTERNAL, NO_KEY, ADMIN_OFF}
        ],
        "http": [f"| `{name}` |" for name, _ in operations()],
        "metrics": [f"| `{name}` |" for name, _ in named_metrics()],
        "settings": [f"| `{each.variable}` |" for each in describe_settings()],
        "python": [".. autofunction:: longtail.load\n", ".. autoclass:: longtail.model.Model\n"],
    }
    missing = [x for name, texts in expected.items() for x in texts if x not in pages[name]]
    assert missing == []


def test_every_name_is_described():
    described = {
        **{name: command.help for name, command in commands()},
        **{
            f"{name} {parameter.name}": parameter.help
            for name, command in commands()
            for parameter in command.params
            if parameter.name != "help" and name != "longtail serve"
        },
        **{
            f"{schema['title']}.{name}": meaning_of(name, key) or key.get("$ref")
            for _, schema in schemas()
            for name, key in keys_of(schema)
        },
        **{each.variable: each.help for each in describe_settings()},
        **{name: each.get("description") for name, each in operations()},
        **{name: metric._documentation for name, metric in named_metrics()},
        **{
            name: each.get("description")
            for name, each in openapi()["components"]["schemas"].items()
        },
    }
    assert len(described) > 400
    assert [name for name, text in described.items() if not (text or "").strip()] == []


def commands() -> list[tuple[str, Any]]:
    return [*commands_of(whole_command(), "longtail")]
