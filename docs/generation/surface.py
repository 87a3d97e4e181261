"""All that users can name: commands, options, keys, settings, routes, metrics, scorers, measures.

Every addition appears in the diff of this one page, and so in review.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from docs.generation.commands import commands_of, whole_command
from docs.generation.configuration import parts_of, schemas
from docs.generation.service import named_metrics, operations
from longtail.models.kinds.registry import scorer_names
from longtail.service.settings import PREFIX, Settings

_INTRODUCTION = """\
# Surface

<!-- Written by docs/generate.py: change the code, not this page. -->

Which names does Longtail promise to its users?

An addition or a removal changes this page, which a test compares with the code.
The options of `longtail serve` are the settings.
"""


def render() -> str:
    """Return the page."""
    whole = whole_command()
    options = {
        name: [*_options(command)]
        for name, command in [("longtail", whole), *commands_of(whole, "longtail")]
    }
    number = sum(map(len, options.values()))
    lines = [" ".join(f"{name} {' '.join(sorted(each))}".split()) for name, each in options.items()]
    parts = [
        _listed(f"Commands: {len(options) - 1}, with options: {number}", lines),
        *(_counted(title, names) for title, names in _names().items()),
    ]
    return "\n".join([_INTRODUCTION, *parts])


def _names() -> dict[str, list[str]]:
    return {
        "Configuration keys": [*_keys()],
        "Settings": [f"{PREFIX}{name.upper()}" for name in Settings.model_fields],
        "Routes": [name for name, _ in operations()],
        "Metrics": [name for name, _ in named_metrics()],
        "Scorers": scorer_names(),
    }


def _counted(title: str, names: Sequence[str]) -> str:
    return _listed(f"{title}: {len(names)}", names)


def _listed(title: str, lines: Sequence[str]) -> str:
    return "\n".join([f"## {title}", "", "```text", *sorted(lines), "```", ""])


def _options(command: Any) -> Iterator[str]:
    """Yield the options of a command, each by its longest spelling."""
    for each in getattr(command, "params", ()):
        if each.param_type_name == "option" and each.name != "help" and not each.hidden:
            yield max(each.opts, key=len)


def _keys() -> list[str]:
    """Return the configuration keys that take a value, each once; `section.key` in a section."""
    found = {
        f"{path}.{name}".strip("."): None
        for path, schema in schemas()
        for name, key in schema["properties"].items()
        if not any("$ref" in part for part in parts_of(key))
    }
    return list(found)
