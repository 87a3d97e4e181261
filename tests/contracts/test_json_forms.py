"""What JSON of bundles, registries and manifests costs that has the right outer shape alone.

Every type that is read by `json_forms` is found in the source, and gets a million wrong elements at
each place where lists or objects may have many. What else reads JSON is listed by name.
"""

import ast
import importlib
import json
import os
import resource
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("models", "training", "service", "longtail/ext")
NUM_ELEMENTS = 1_000_000
MEMBERS = ",".join(f'"k{number}":' for number in range(NUM_ELEMENTS))
MAX_EXTRA_BYTES = 256 * 2**20
PARSERS = {"loads", "load", "parse_json", "parse_own_json", "read_json", "validate_json",
           "model_validate_json", "TypeAdapter", "SchemaValidator"}  # fmt: skip
WITH_PARSERS = {
    "models/files/typed_json.py": "the one place",
    "models/files/arrays.py": "the header of a safetensors file, of a bounded length",
    "models/bundle/manifest.py": "the digest, of a bounded number of elements",
    "models/files/durable.py": "the parsers; journals, line by line, and our own folders",
    "models/files/rows.py": "a row of a file of people, line by line",
    "models/corpus/arrow.py": "the names of classes in a file of people",
    "models/corpus/raw.py": "our own temporary file",
    "models/labels/cells.py": "a cell of a table of people",
    "models/labels/files.py": "a cell of a table of people",
    "models/edit/add_labels.py": "a line of a label file of people",
    "models/encoders/bert.py": "a configuration of at most a MiB; other forms go to Transformers",
    "models/encoders/sentence_modules.py": "a folder of an encoder to train from",
    "models/options.py": "an option in a query or on a command line",
    "service/engine/queries.py": "files of a bounded size; the first wrong element is refused",
    "training/calibration/ensemble.py": "",
}
"""Modules below `models`, and others that read what is shared, which parse JSON by themselves."""


def calls_of(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func
            yield (called.attr if isinstance(called, ast.Attribute) else
                   getattr(called, "id", "")), node  # fmt: skip


def forms():
    """Return (module, the call as it is written) of every call of `json_forms`."""
    found = []
    for path in sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")):
        for name, node in calls_of(path):
            if name == "json_forms":
                file = path.relative_to(ROOT).with_suffix("").as_posix()
                module = f"longtail/{file.removeprefix('longtail/')}".replace("/", ".")
                found.append((module, ast.unparse(node)))
    return found


FORMS = forms()


def test_all_other_json_of_models_is_read_by_modules_that_are_listed():
    paths = [*(ROOT / "models").rglob("*.py"), ROOT / "service/engine/queries.py"]
    found = {
        str(path.relative_to(ROOT))
        for path in paths
        if any(name in PARSERS for name, _ in calls_of(path))
    }
    assert found == {name for name in WITH_PARSERS if WITH_PARSERS[name]}


def places_of(schema, known, depth=0):  # noqa: C901, PLR0912  # a case for each kind of type
    """Yield (text before, kind, text behind) of each container that a type may hold."""
    kind = schema.get("type")
    if depth > 12:
        return
    if kind == "definitions":
        known = known | {each["ref"]: each for each in schema["definitions"]}
        yield from places_of(schema["schema"], known, depth)
    elif kind == "definition-ref":
        yield from places_of(known[schema["schema_ref"]], known, depth + 1)
    elif kind in {"list", "tuple", "set", "frozenset"}:
        items = schema["items_schema"]
        yield "[", "list", "]"
        for before, what, behind in places_of(
            items[0] if isinstance(items, list) else items, known, depth + 1
        ):
            yield "[" + before, what, behind + "]"
    elif kind == "dict":
        yield "{", "object", "}"
        for before, what, behind in places_of(schema["values_schema"], known, depth + 1):
            yield '{"a":' + before, what, behind + "}"
    elif kind == "dataclass-args":
        yield "{", "object", "}"
        for field in schema["fields"]:
            name = json.dumps(field["name"])
            for before, what, behind in places_of(field["schema"], known, depth + 1):
                yield f"{{{name}:{before}", what, behind + "}"
    elif isinstance(schema.get("schema"), dict):
        yield from places_of(schema["schema"], known, depth)
    elif kind == "union":
        for each in schema["choices"]:
            choice = each[0] if isinstance(each, tuple) else each
            yield from places_of(choice, known, depth + 1)


def attacks_on(schema):
    """Yield texts of the right outer shape with many wrong elements."""
    items = {"list": ["[]"], "object": ["[]", "{}"]}
    for before, what, behind in sorted(set(places_of(schema, {}))):
        for item in items[what]:
            if what == "list":
                yield before + ",".join([item] * NUM_ELEMENTS) + behind
            else:
                yield before + MEMBERS.replace(":", ":" + item) + behind
    inner = "{" + ",".join(f'"k{number}":1' for number in range(1000)) + "}"
    yield "{" + ",".join(f'"k{number}":{inner}' for number in range(1000)) + "}"


def extra_bytes(read, text):
    """Return how much memory reading a text takes, in a process of its own; 2^62: it was ended."""
    source, sink = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            limit = 16 << 30  # bytes, so that a fault does not take the whole machine
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            before = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
            try:
                read(text)
            except ValueError as error:
                assert len(str(error)) < 1000  # noqa: PT017
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            os.write(sink, str(peak - before).encode())
        finally:
            os._exit(0)
    os.close(sink)
    os.waitpid(child, 0)
    with os.fdopen(source) as told:
        found = told.read()
    return int(found or 2**62)


def measure(module, written):
    """Print the most memory that a text takes, in bytes, and how it begins."""
    from pydantic import TypeAdapter  # in a process without the libraries of this one

    names = vars(importlib.import_module(module))
    _, read = eval(written, names)  # noqa: S307
    form = eval(ast.unparse(ast.parse(written).body[0].value.args[0]), names)  # noqa: S307
    worst = max(
        (extra_bytes(read, text), text[:80], text[-20:])
        for text in attacks_on(TypeAdapter(form).core_schema)
    )
    print(json.dumps(worst))  # noqa: T201


@pytest.mark.slow
@pytest.mark.parametrize(("module", "written"), FORMS)
def test_a_million_wrong_elements_take_little_memory(module, written):
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n" + textwrap.dedent(
        f"import test_json_forms\ntest_json_forms.measure({module!r}, {written!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    taken, begin, end = json.loads(done.stdout)
    assert taken < MAX_EXTRA_BYTES, f"{begin} ... {end}"
