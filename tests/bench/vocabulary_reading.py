"""Reading a large vocabulary: seconds, peak memory, and the same concepts as rdflib finds.

    python tests/bench/vocabulary_reading.py --concepts 1000000

Concepts are made up: a type, a name in each of three languages and, but for the first, a broader
concept; names have letters beyond ASCII, and every tenth a quote. Each file is read in a process of
its own. What is compared with rdflib is a file of 10,000 of them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import rdflib
from machine import begin
from recording import Table, add_json_option, keep

from longtail.models.vocabulary.facts import CONCEPT, OWL, RDF, SKOS, TYPE
from longtail.models.vocabulary.reading import read_vocabulary

COMPARED = 10_000
BASE = "http://example.org/concept/"
WORDS = {
    "en": ("river", "law", "fish", "copyright", "glass", "port"),
    "fi": ("järvi", "työlainsäädäntö", "kala", "tekijänoikeus", "lasi", "satama"),
    "de": ("Fluss", "Gesetz", "Fisch", "Urheberrecht", "Glaskörper", "Häfen"),
}
HEADERS = {
    ".nt": "",
    ".ttl": f"@prefix skos: <{SKOS}> .\n@prefix ex: <{BASE}> .\n",
    ".rdf": f'<?xml version="1.0"?>\n<rdf:RDF xmlns:rdf="{RDF}" xmlns:skos="{SKOS}" '
    f'xmlns:owl="{OWL}">\n',
}
FOOTERS = {".nt": "", ".ttl": "", ".rdf": "</rdf:RDF>\n"}
READ = """
import json, resource, sys, time
from pathlib import Path
from longtail.models.vocabulary.reading import read_vocabulary
started = time.perf_counter()
vocabulary = read_vocabulary(Path(sys.argv[1]))
seconds = time.perf_counter() - started
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
print(json.dumps([len(vocabulary.concepts), seconds, time.process_time(), peak]))
"""


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--concepts", type=int, default=1_000_000)
    add_json_option(parser)
    options = begin(parser)
    table = Table(
        {
            "syntax": "", "MB": ",.0f", "concepts": ",d", "seconds": ".1f",
            "seconds of the processor": ".1f", "peak GiB": ".2f", "as rdflib": "",
        }
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        for suffix in HEADERS:
            path = written(Path(folder), suffix, options.concepts)
            command = [sys.executable, "-c", READ, str(path)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            small = written(Path(folder), suffix, COMPARED)
            megabytes = path.stat().st_size / 1e6
            table.add(suffix, megabytes, *json.loads(done.stdout), is_as_rdflib_reads_it(small))
    keep(options.json, {"reading": table.to_json()}, seeds=[])


def written(folder: Path, suffix: str, number: int) -> Path:
    """Write a vocabulary and return its path."""
    path = folder / f"{number}{suffix}"
    with path.open("w", encoding="utf-8") as file:
        file.write(HEADERS[suffix])
        write = {".nt": write_ntriples, ".ttl": write_turtle, ".rdf": write_rdf_xml}[suffix]
        for index in range(number):
            write(file, index)
        file.write(FOOTERS[suffix])
    return path


def names_of(index: int) -> Iterator[tuple[str, str]]:
    """Yield the language and the name of a concept in it."""
    for language, words in WORDS.items():
        name = f"{words[index % len(words)]} {words[index // 7 % len(words)]} {index}"
        yield language, f'"{name}" {index}' if index % 10 == 0 else name


def quoted(text: str) -> str:
    """Return a text as Turtle and N-Triples write it."""
    return '"' + text.replace('"', '\\"') + '"'


def write_ntriples(file: TextIO, index: int) -> None:
    subject = f"<{BASE}{index}>"
    file.write(f"{subject} <{TYPE}> <{CONCEPT}> .\n")
    for language, name in names_of(index):
        file.write(f"{subject} <{SKOS}prefLabel> {quoted(name)}@{language} .\n")
    if index:
        file.write(f"{subject} <{SKOS}broader> <{BASE}{index // 8}> .\n")


def write_turtle(file: TextIO, index: int) -> None:
    names = ", ".join(f"{quoted(name)}@{language}" for language, name in names_of(index))
    broader = f" ;\n    skos:broader ex:{index // 8}" if index else ""
    file.write(f"\nex:{index} a skos:Concept ;\n    skos:prefLabel {names}{broader} .\n")


def write_rdf_xml(file: TextIO, index: int) -> None:
    file.write(f'  <skos:Concept rdf:about="{BASE}{index}">\n')
    for language, name in names_of(index):
        file.write(f'    <skos:prefLabel xml:lang="{language}">{name}</skos:prefLabel>\n')
    if index:
        file.write(f'    <skos:broader rdf:resource="{BASE}{index // 8}"/>\n')
    file.write("  </skos:Concept>\n")


def is_as_rdflib_reads_it(path: Path) -> bool:
    """Whether names and broader concepts are those of rdflib's graph."""
    graph = rdflib.Graph().parse(path, format={".rdf": "xml", ".nt": "nt"}.get(path.suffix))
    names = {
        (str(concept), text.language, str(text))
        for concept, text in graph.subject_objects(rdflib.SKOS.prefLabel)
    }
    broader = {(str(a), str(b)) for a, b in graph.subject_objects(rdflib.SKOS.broader)}
    concepts = read_vocabulary(path).concepts
    return (
        names == {(x.id, language, name) for x in concepts for language, name in x.names.items()}
        and broader == {(x.id, other) for x in concepts for other in x.broader}
        and len(concepts) == COMPARED
    )


if __name__ == "__main__":
    main()
