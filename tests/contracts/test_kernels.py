"""The C functions take what Python declares: names, number, order and types, fields of structs too.

A swapped argument is no error of any compiler but memory that is written to in the wrong place.
"""

import importlib
import re
from pathlib import Path

import numpy as np

from longtail.models.native.library import (
    CSR_PLACES,
    DECLARED,
    FLOAT,
    GROWN,
    INT,
    ArrayOf,
    Csr,
    CsrOf,
    RecordOf,
)

ROOT = Path(__file__).parents[2]
SOURCES = {
    path.name: re.sub(r"//.*", "", path.read_text("utf-8"))
    for path in sorted((ROOT / "models/native").glob("*.[ch]"))
}
C_TYPES = {
    "float32": "float", "float64": "double", "int8": "int8_t", "int16": "int16_t",
    "int32": "int32_t",
    "int64": "int64_t", "bool": "bool",
}  # fmt: skip
OF_NO_ARRAYS = {"longtail_level", "longtail_free"}


def _declared_everywhere():
    for package in ("models", "training", "research"):
        for path in (ROOT / package).rglob("*.py"):
            if "native.library import" in path.read_text("utf-8"):
                parts = path.relative_to(ROOT).with_suffix("").parts
                importlib.import_module(
                    ".".join(parts if package == "research" else ("longtail", *parts))
                )
    return {name: signature.parameters for name, signature in DECLARED.items()}


def _variables(text):
    """Yield type and name of what a C declaration declares: `const float *data, *squares`."""
    if text.strip() == "void":
        return
    constant, base, names = re.fullmatch(r"(const )?(\w+) (.*)", text.strip(), re.S).groups()
    for name in names.split(","):
        stars, bare, length = re.fullmatch(r"\s*(\**)(\w+)(?:\[([^]]+)\])?\s*", name).groups()
        yield (constant or "") + base + stars + (f"[{length}]" if length else ""), bare


def prototypes(text):
    """Return type and name of the parameters of each kernel of a source."""
    return {
        name: [pair for each in parameters.split(",") for pair in _variables(each)]
        for name, parameters in re.findall(r"^KERNEL (\w+)\(([^)]*)\) \{", text, re.M)
        if name not in OF_NO_ARRAYS
    }


def structs(text):
    """Return type and name of the fields of each struct of a source; a union's are alternatives."""
    found = {}
    for body, name in re.findall(r"typedef struct \{\n(.*?)\n\} (\w+);", text, re.S):
        flat = re.sub(r"union \{\s*([^;]*);[^}]*\};", r"\1;", body)
        found[name] = [
            pair for each in flat.split(";") if each.strip() for pair in _variables(each)
        ]
    return found


def _c_type(convert):
    if convert in (INT, FLOAT):
        return "int64_t" if convert is INT else "double"
    if convert is GROWN:
        return "grown*"
    if isinstance(convert, CsrOf):
        return "const csr*"
    if isinstance(convert, RecordOf):
        return f"const {convert.name}*"
    assert isinstance(convert, ArrayOf)
    name = C_TYPES.get(convert.dtype.name, "node")
    return f"{name}*" if convert.is_written else f"const {name}*"


def differences(text, declared):
    """Return the kernels of a source that Python declares otherwise."""
    found = []
    for name, parameters in prototypes(text).items():
        expected = [(_c_type(x), parameter) for parameter, x in declared.get(name, {}).items()]
        found += [(name, parameters, expected)] if parameters != expected else []
    fields = structs(text)
    for kernel in declared.values():
        for record in kernel.values():
            if isinstance(record, RecordOf) and record.name in fields:
                parameters = record.signature.parameters
                expected = [(_c_type(x), name) for name, x in parameters.items()]
                if fields[record.name] != expected:
                    found.append((record.name, fields[record.name], expected))
    return found


def test_every_kernel_is_declared_as_it_is_written():
    declared = _declared_everywhere()
    assert {name for text in SOURCES.values() for name in prototypes(text)} == set(declared)
    assert len(declared) >= 28
    for name, text in SOURCES.items():
        assert differences(text, declared) == [], name


def test_every_struct_that_is_passed_is_found_in_one_source():
    everywhere = [name for text in SOURCES.values() for name in structs(text)]
    records = {
        record.name
        for parameters in _declared_everywhere().values()
        for record in parameters.values()
        if isinstance(record, RecordOf)
    }
    assert len(records) == 8
    assert all(everywhere.count(name) == 1 for name in records)


def test_structs_of_both_sides_that_are_no_records_agree():
    header = structs(SOURCES["kernels.h"])
    assert [name for _, name in header["csr"]] == [name for name, *_ in Csr._fields_]
    assert header["grown"] == [("void*", "data"), ("int64_t", "size")]
    assert CSR_PLACES.values is None
    nodes = DECLARED["boosted_trees_add"].parameters["trees"].signature.parameters["nodes"].dtype
    assert structs(SOURCES["boosted_trees.c"])["node"] == [
        ("float", "threshold"), ("int32_t", "feature"), ("int32_t[2]", "ways"),
    ]  # fmt: skip
    assert nodes.names == ("threshold", "feature", "ways")
    assert nodes.itemsize == 16 and nodes["ways"].shape == (2,) and nodes["feature"] == np.int32
