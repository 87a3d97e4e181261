"""The keys of a training run's configuration, from the JSON schema of the models that read it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from docs.generation.markdown import code, sentence, table
from longtail.training.configuration.run import TrainingConfig
from longtail.training.configuration.sections import StageConfig

_HEADINGS = ("key", "default", "values", "meaning")
_KINDS = {
    "array": "list", "boolean": "true or false", "integer": "whole number", "number": "number",
    "object": "mapping", "string": "text",
}  # fmt: skip
_INHERITED = StageConfig.model_json_schema()["properties"]
"""Descriptions of keys whose default alone differs by stage."""

Schema = dict[str, Any]


def render() -> str:
    """Return the part of the page: the top level, then each section and each kind of one, once."""
    sections: dict[str, tuple[str, Schema]] = {}
    for path, schema in schemas():
        sections.setdefault(schema["title"], (path, schema))
    parts: list[str] = []
    for path, schema in sections.values():
        kind = schema["properties"].get("kind", {}).get("const")
        title = f"## `{path}: {{kind: {kind}}}`" if kind else f"## `{path}`"
        parts += [title, sentence(schema.get("description"))] if path else ["## Top level"]
        parts.append(
            table(_HEADINGS, [_row(*key, schema.get("required", ())) for key in keys_of(schema)])
        )
    return "\n\n".join(filter(None, parts))


def schemas() -> Iterator[tuple[str, Schema]]:
    """Yield the schema of the top level and of every section, with the path of its key."""
    whole = TrainingConfig.model_json_schema()
    yield from _below("", whole, whole["$defs"])


def keys_of(schema: Schema) -> Iterator[tuple[str, Schema]]:
    """Yield the keys of a section, without the one that names its kind."""
    yield from ((name, key) for name, key in schema["properties"].items() if name != "kind")


def parts_of(key: Schema) -> list[Schema]:
    """Return the alternatives of a key, unfolded: references to sections, types of values."""
    below = [*key.get("anyOf", ()), *key.get("oneOf", ())]
    return [part for each in below for part in parts_of(each)] or [key]


def meaning_of(name: str, key: Schema) -> str:
    """Return the description of a key in one line; empty for one that only leads to a section."""
    return sentence(key.get("description") or _INHERITED.get(name, {}).get("description"))


def _below(path: str, schema: Schema, named: dict[str, Schema]) -> Iterator[tuple[str, Schema]]:
    yield path, schema
    for name, key in keys_of(schema):
        for part in parts_of(key):
            if "$ref" in part:
                section = named[part["$ref"].rpartition("/")[2]]
                yield from _below(f"{path}.{name}".strip("."), section, named)


def _row(name: str, key: Schema, required: Collection[str]) -> tuple[str, str, str, str]:
    words = filter(None, map(_values, parts_of(key)))
    default = "required" if name in required else _default(key.get("default"))
    return f"`{name}`", default, " or ".join(dict.fromkeys(words)), meaning_of(name, key)


def _default(default: Any) -> str:
    if isinstance(default, dict):
        return f"`{{kind: {default['kind']}}}`" if "kind" in default else "its defaults"
    return code(default) or "none"


def _values(key: Schema) -> str:
    """Return the values that a key takes; nothing for null."""
    if "$ref" in key:
        return "section"
    if "enum" in key or "const" in key:
        return ", ".join(map(code, key.get("enum") or [key["const"]]))
    if "items" in key:
        return f"list of {_values(key['items'])}"
    if key.get("type", "null") == "null":
        return ""
    kind = "path" if key.get("format") == "path" else _KINDS[key["type"]]
    return ", ".join(filter(None, [kind, _bounds(key)]))


def _bounds(key: Schema) -> str:
    """Return the bounds of a number, as in "1 to 64"."""
    lower = str(key["minimum"]) if "minimum" in key else ""
    if "exclusiveMinimum" in key:
        lower = f"above {key['exclusiveMinimum']}"
    upper = str(key["maximum"]) if "maximum" in key else ""
    if "exclusiveMaximum" in key:
        upper = f"below {key['exclusiveMaximum']}"
    if lower and upper:
        return f"{lower} to {upper}"
    return f"at least {lower}" if "minimum" in key else lower or (f"at most {upper}" * bool(upper))
