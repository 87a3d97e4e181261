"""The HTTP routes and the fields of their bodies, from the OpenAPI document."""

from __future__ import annotations

from typing import Any

from docs.generation.markdown import code, page, sentence, table
from longtail.service.app import create_app
from longtail.service.settings import Settings

_INTRODUCTION = """\
Which routes does the service have, what do they take, and what do they answer?

The same, for machines, is served at `/openapi.json`, and for trying it out at `/docs`.

- Bodies may be compressed (`Content-Encoding: gzip` or `deflate`); limits hold for the uncompressed size.
- HEAD is answered for `/livez`, `/readyz` and the page.
- An unknown query parameter of a route of our own is a 422 that names it; probes and `/metrics` accept any.
- Every error is a [problem document](errors.md).
- With API keys every route but the public ones may answer 401; a body that comes late is a 408."""
_GROUPS = (
    ("Prediction", ("/v1/predict", "/v1/batch")),
    ("Labels", ("/v1/labels", "/v1/label-sets")),
    ("Feedback", ("/v1/feedback", "/v1/admin/feedback")),
    ("Models and health", ("/v1/models", "/livez", "/readyz", "/metrics")),
    ("Administration", ("/v1/admin",)),
    ("Annif", ("/v1/",)),
    ("Open Inference Protocol", ("/v2",)),
)
_METHODS = ("get", "put", "post", "patch", "delete")


def render() -> str:
    """Return the page: routes by group, then the fields of every object."""
    document = create_app(Settings.model_construct()).openapi()
    parts, left = [_INTRODUCTION], dict(document["paths"])
    for title, prefixes in _GROUPS:
        paths = [path for path in left if path.startswith(prefixes)]
        parts += [f"## {title}", _routes({path: left.pop(path) for path in paths})]
    if left:
        parts += ["## Others", _routes(left)]
    parts.append("## Objects")
    schemas = document["components"]["schemas"]
    for name, schema in sorted(schemas.items()):
        content = _fields(schema) if "properties" in schema else _kinds(schema, schemas)
        parts += [f"### `{name}`", sentence(schema.get("description")), content]
    return page("HTTP routes", "the OpenAPI document of service/app.py", *parts)


def _routes(paths: dict[str, Any]) -> str:
    rows = [
        _route(f"{method.upper()} {path}", operations[method])
        for path, operations in paths.items()
        for method in _METHODS
        if method in operations
    ]
    return table(("route", "answers", "parameters and body", "statuses"), rows)


def _route(name: str, operation: dict[str, Any]) -> tuple[str, str, str, str]:
    takes = [f"`{item['name']}`" for item in operation.get("parameters", ())]
    content = operation.get("requestBody", {}).get("content", {})
    bodies = [f"{_type(body.get('schema', {}))} (`{media}`)" for media, body in content.items()]
    about = sentence(operation.get("description")) or operation.get("summary", "")
    answers = [
        _type(body["schema"])
        for body in operation["responses"].get("200", {}).get("content", {}).values()
        if "$ref" in body.get("schema", {})
    ]
    returned = f" {' or '.join(answers)}" if answers else ""
    statuses = ", ".join(sorted(operation["responses"]))
    return (
        f"`{name}`",
        about + returned,
        "; ".join([", ".join(takes), *bodies]).strip("; "),
        statuses,
    )


def _fields(schema: dict[str, Any]) -> str:
    required = schema.get("required", ())
    rows = [
        (
            f"`{name}`",
            _type(field),
            _default(name, field, required),
            sentence(field.get("description")),
        )
        for name, field in schema.get("properties", {}).items()
    ]
    return table(("field", "type", "default", "meaning"), rows)


def _kinds(schema: dict[str, Any], schemas: dict[str, Any]) -> str:
    """Return which objects one may be that has no fields of its own."""
    names = [kind["$ref"].rpartition("/")[2] for kind in schema.get("anyOf", ()) if "$ref" in kind]
    rows = [
        (
            f"[`{name}`](#{name.lower()})",
            _type(schemas[name]["properties"].get("action", {})),
            sentence(schemas[name].get("description")),
        )
        for name in names
    ]
    return table(("one of", "`action`", "meaning"), rows)


def _default(name: str, field: dict[str, Any], required: Any) -> str:
    if name in required:
        return "required"
    default = field.get("default")
    return "none" if default in (None, "", []) else code(default)


def _type(schema: dict[str, Any]) -> str:
    """Return a JSON schema's type, objects by name, numbers with their bounds."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[`{name}`](#{name.lower()})"
    for union in ("anyOf", "oneOf"):
        if union in schema:
            return " or ".join(dict.fromkeys(map(_type, schema[union])))
    if "enum" in schema:
        return ", ".join(f"`{choice}`" for choice in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}{_limits(schema, 'Items')}"
    return f"{schema.get('type', 'any')}{_limits(schema, 'Length')}{_limits(schema, 'imum')}"


def _limits(schema: dict[str, Any], suffix: str) -> str:
    low, high = schema.get(f"min{suffix}"), schema.get(f"max{suffix}")
    if high is not None:
        return f", {_number(low or 0)} to {_number(high)}"
    return "" if low is None else f", at least {_number(low)}"


def _number(value: float) -> str:
    return f"{value:g}" if abs(value) < 1e6 else str(int(value))
