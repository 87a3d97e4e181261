"""The cases of `worst_requests.py`: each thing that a client controls, at its limit and beyond.

They are made of the service's own OpenAPI document, so new routes join by being in it: each list,
object, text and number of a body, each parameter of a query and a path, headers, depth, and bytes.
A route whose body is of a media type that is not known here is an error.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

MAX_BODY = 4 * 1024**2
"""Bytes of a body: the default of the service's setting."""
THERE = {
    "project_id": "longtail", "model": "longtail", "version": "2", "label_id": "L1",
}  # fmt: skip
"""Values of parameters in paths that lead to something."""
JSON, LINES, FORM = (
    "application/json", "application/x-ndjson", "application/x-www-form-urlencoded",
)  # fmt: skip
_HOLE = "@@hole@@"
_CHOICE = "<Choice value='L1' alias='L2'/>"
_TEXT = "<Text name='t' value='$text'/>"
_FIELDS = "$a " * 100
_TAXONOMY = "<Taxonomy name='c' toName='t' apiUrl='x'/>"
_CONFIGS = {
    "template": f"<View><Text name='t' value='{_FIELDS}'/>{_TAXONOMY}</View>",
    "choices": f"<View>{_TEXT}<Choices name='c' toName='t'>{_CHOICE * 19_000}</Choices></View>",
    "attributes": "<View " + " ".join(f"a{i}=''" for i in range(59_000)) + "/>",
    "too many tags": "<View>" + "<a/>" * 900_000 + "</View>",
    "deep tags": "<a>" * 29_000 + "</a>" * 29_000,
}
"""Labelling configurations of Label Studio, in fields of these names."""
_CONFIG_FIELDS = ("label_config", "schema")


@dataclass(frozen=True)
class Case:
    """One request.

    Attributes:
        operation: Its method, and its path as the document has it.
        dimension: What of it is large.
        target: Path and query to ask.
        headers: Besides those that every request has.
        make_body: Makes the body, which may be several megabytes.
    """

    operation: str
    dimension: str
    target: str
    headers: Mapping[str, str] = field(default_factory=dict)
    make_body: Callable[[], bytes] | None = None

    @property
    def method(self) -> str:
        """The HTTP method."""
        return self.operation.partition(" ")[0]


def cases_of(document: Mapping[str, Any]) -> Iterator[Case]:
    """Yield the cases of every operation of an OpenAPI document.

    Raises:
        KeyError: A body is of a media type of which no cases can be made.
    """
    schemas = _Schemas(document["components"]["schemas"])
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            name = f"{method.upper()} {path}"
            target = path.format(**THERE)
            yield from _cases_of_head(name, path, target, operation.get("parameters", ()))
            content = operation.get("requestBody", {}).get("content", {})
            for media_type, made in content.items():
                schema = {"$ref": "#/components/schemas/BatchLine"}
                schema = schema if media_type == LINES else made["schema"]
                for dimension, make_body, headers in _BODIES[media_type](schemas, schema):
                    sent = {"Content-Type": media_type} | headers
                    yield Case(name, dimension, target, sent, make_body)


def _cases_of_head(
    name: str, path: str, target: str, parameters: list[Mapping[str, Any]]
) -> Iterator[Case]:
    """Yield cases of path, query and headers."""
    yield Case(name, "nothing large", target)
    yield Case(name, "headers", target, {f"X-{i}": "a" * 900 for i in range(50)})
    yield Case(name, "accept-encoding", target, {"Accept-Encoding": "a," * 20_000})
    yield Case(name, "content-type", target, {"Content-Type": JSON + ";a=b" * 10_000})
    for count in (3900, 30_000):
        yield Case(name, f"{count} unknown parameters", f"{target}?{'&a' * count}")
    for step in re.findall(r"{(\w+)(?::path)?}", path):
        for value in ("x" * 40_000, "9" * 40_000, "%EF%B7%BA" * 4000, "a%2F" * 10_000):
            there = {**THERE, step: value}
            yield Case(name, f"path: {step}", path.replace(":path", "").format(**there))
    for parameter in parameters:
        if parameter["in"] != "query":
            continue
        key, schema = parameter["name"], parameter["schema"]
        most = schema.get("maximum", 10**9)
        values = ["%EF%B7%BA" * 1000, "a+" * 500, "x" * 40_000, most, "9" * 40_000]
        for value in values:
            yield Case(name, f"query: {key}", f"{target}?{key}={value}")
        many = "&".join(f"{key}=a" for _ in range(3900))
        yield Case(name, f"query: {key}, many times", f"{target}?{many}")


@dataclass(frozen=True)
class _Schemas:
    """The schemas of a document, and values that they allow."""

    schemas: Mapping[str, Any]

    def resolved(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a schema without references and choices: the first choice that is not null."""
        while True:
            if "$ref" in schema:
                schema = self.schemas[schema["$ref"].rpartition("/")[2]]
            elif "allOf" in schema:
                schema = schema["allOf"][0]
            elif "anyOf" in schema:
                schema = next(each for each in schema["anyOf"] if each.get("type") != "null")
            else:
                return schema

    def smallest(self, schema: Mapping[str, Any]) -> Any:
        """Return a small value that a schema allows."""
        schema = self.resolved(schema)
        if "const" in schema or "enum" in schema:
            return schema.get("const") or schema["enum"][0]
        kind = schema.get("type", "string")
        if kind == "object":
            properties = schema.get("properties", {})
            return {x: self.smallest(properties[x]) for x in schema.get("required", ())}
        if kind == "array":
            return [self.smallest(schema["items"])] * schema.get("minItems", 0)
        if kind == "string":
            return "2026-01-01T00:00:00Z" if schema.get("format") == "date-time" else "text"
        return {"boolean": True}.get(kind, max(1, schema.get("minimum", 1)))

    def holes(self, schema: Mapping[str, Any], depth: int = 0) -> Iterator[tuple[str, str, Any]]:
        """Yield place, kind and value of all that can be large; it is `_HOLE` in the value."""
        schema = self.resolved(schema)
        kind = schema.get("type", "any")
        yield "", kind, _HOLE
        if kind == "array" and depth < 8:
            for place, inner, value in self.holes(schema.get("items", {}), depth + 1):
                yield f"/0{place}", inner, [value]
        if kind == "object" and depth < 8:
            base = self.smallest(schema)
            for name, each in schema.get("properties", {}).items():
                for place, inner, value in self.holes(each, depth + 1):
                    yield f"/{name}{place}", inner, {**base, name: value}


def _repeated(item: bytes, count: int, room: int = MAX_BODY - 2**16) -> bytes:
    """Return items of a list: so many, or as many as a body has room for."""
    return b",".join([item] * min(count, room // (len(item) + 1)))


def _fields(count: int) -> bytes:
    return b",".join(b'"k%d":1' % number for number in range(count))


_FILLINGS: dict[str, dict[str, Callable[[], bytes]]] = {
    "array": {
        "wrong items": lambda: b"[" + _repeated(b"1", 2_000_000) + b"]",
        "wrong items in the limit": lambda: b"[" + _repeated(b"{}", 140_000) + b"]",
        "texts": lambda: b"[" + _repeated(b'"text"', 290_000) + b"]",
        "lists": lambda: b"[" + _repeated(b"[]", 140_000) + b"]",
    },
    "object": {
        "fields": lambda: b"{" + _fields(300_000) + b"}",
        "fields in the limit": lambda: b"{" + _fields(27_000) + b"}",
    },
    "string": {
        "characters": lambda: b'"' + b"a" * 4_000_000 + b'"',
        "signs": lambda: b'"' + b",[" * 2_000_000 + b'"',
        "escapes": lambda: b'"' + b"\\u0101" * 660_000 + b'"',
    },
    "number": {"digits": lambda: b"9" * 4_000_000, "size": lambda: b"1e308"},
    "boolean": {},
    "any": {"fields in the limit": lambda: b"{" + _fields(27_000) + b"}"},
    "null": {},
}
_FILLINGS["integer"] = _FILLINGS["number"]

_Body = tuple[str, Callable[[], bytes], dict[str, str]]


def _json_bodies(schemas: _Schemas, schema: Mapping[str, Any]) -> Iterator[_Body]:
    """Yield bodies in JSON, each with one thing that is large."""
    yield "depth", lambda: b"[" * 4_000_000, {}
    yield "depth in objects", lambda: b'{"a":' * 29_000, {}
    yield "white space", lambda: b" " * 4_000_000 + b"{}", {}
    for place, kind, value in schemas.holes(schema):
        text = json.dumps(value).encode()
        fillings = dict(_FILLINGS[kind])
        if place.rpartition("/")[2] in _CONFIG_FIELDS:
            fillings |= {
                name: lambda config=config: json.dumps(config).encode()
                for name, config in _CONFIGS.items()
            }
        for name, fill in fillings.items():
            yield f"{place or '/'}: {name}", _filled(text, fill), {}
    yield from _known_bodies(schemas.resolved(schema).get("title", ""))


def _filled(text: bytes, fill: Callable[[], bytes]) -> Callable[[], bytes]:
    return lambda: text.replace(f'"{_HOLE}"'.encode(), fill())


def _known_bodies(title: str) -> Iterator[_Body]:
    """Yield bodies that no schema tells: good ones that are as dear as they may be."""
    if title == "PredictRequest":
        texts = [f"olive oil imports {number} " * 2000 for number in range(64)]
        for options in ({"k": 1000}, {"k": 1, "scorer": "sparse"}):
            body = json.dumps({"texts": texts, **options}).encode()
            yield f"64 texts, {options}", lambda body=body: body, {}
        body = json.dumps({"text": texts[0], "k": 100, "explain": True}).encode()
        yield "100 explanations", lambda: body, {}
    if title == "InferRequest":
        tensor = {"name": "text", "datatype": "BYTES", "shape": [10**6]}
        head = json.dumps({"inputs": [tensor | {"parameters": {"binary_data_size": 4 * 10**6}}]})
        headers = {"Inference-Header-Content-Length": str(len(head))}
        yield "empty binary texts", lambda: head.encode() + bytes(4 * 10**6), headers
        text = b"olive oil " * 6000
        binary = (struct.pack("<I", len(text)) + text) * 64
        tensor |= {"shape": [64], "parameters": {"binary_data_size": len(binary)}}
        good = json.dumps({"inputs": [tensor], "parameters": {"k": 1000}}).encode()
        headers = {"Inference-Header-Content-Length": str(len(good))}
        yield "64 texts, k=1000", lambda: good + binary, headers
    if title == "TasksRequest":
        for name, text, count in (("long", "x" * 1_000_000, 1), ("many", "x" * 999, 1000)):
            tasks = [{"id": number, "data": {"a": text}} for number in range(count)]
            body = json.dumps({"label_config": _CONFIGS["template"], "tasks": tasks}).encode()
            yield f"a template of {name} texts", lambda body=body: body, {}
    if title == "DocumentBatch":
        documents = [{"text": f"olive oil {number} " * 5000} for number in range(32)]
        yield "32 documents", lambda: json.dumps({"documents": documents}).encode(), {}


def _lines_bodies(schemas: _Schemas, schema: Mapping[str, Any]) -> Iterator[_Body]:
    """Yield bodies of JSON lines: the same as one line each, and many small ones."""
    for dimension, make_body, headers in _json_bodies(schemas, schema):
        yield dimension, lambda make_body=make_body: make_body() + b"\n", headers
    for name, line in {"blank": b"\n", "wrong": b"x\n", "null": b"null\n"}.items():
        yield f"{name} lines", lambda line=line: line * (MAX_BODY // len(line)), {}
    yield "good lines", lambda: b'{"text":"a","k":1000}\n' * 200, {}


def _form_bodies(_: _Schemas, __: Mapping[str, Any]) -> Iterator[_Body]:
    yield "characters", lambda: b"text=" + b"a" * 4_000_000, {}
    yield "escapes", lambda: b"text=" + b"%41" * 1_390_000, {}
    yield "fields", lambda: b"a=b&" * 1_000_000, {}
    yield "a text, limit=1000", lambda: b"limit=1000&text=" + b"olive+oil+" * 9000, {}


_BODIES = {JSON: _json_bodies, LINES: _lines_bodies, FORM: _form_bodies}
