"""Make corpora in the forms of Annif's tutorial out of `tate` and `eurlex57k`.

    python tests/bench/annif_forms.py OUT --data ../shared/data

`OUT/tate`: a SKOS vocabulary in Turtle, training and test documents as short-text TSV.
`OUT/eurlex57k`: a SKOS vocabulary in Turtle, documents as full-text folders (a `.txt` with a `.tsv`
each). The names exist in English alone; the vocabularies have them in Finnish and French too, word
for word, since what is tried is the form.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

LANGUAGES = ("en", "fi", "fr")
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--documents", type=int, help="at most so many of each split")
    chosen = parser.parse_args()
    make_short_texts(chosen.data / "tate", chosen.output / "tate", chosen.documents)
    make_full_texts(chosen.data / "eurlex57k", chosen.output / "eurlex57k", chosen.documents)


def make_short_texts(source: Path, folder: Path, most: int | None) -> None:
    """Write a vocabulary, and a document a line: its text, a tab, the URIs of its labels."""
    labels = list(read(source / "lbl.json.gz"))
    uris = [f"http://example.org/tate/{label['uid']}" for label in labels]
    by_name = {label["title"]: uri for label, uri in zip(labels, uris, strict=True)}
    parents = [[by_name[x["parent"]]] if x.get("parent") in by_name else [] for x in labels]
    folder.mkdir(parents=True, exist_ok=True)
    write_turtle(folder / "vocabulary.ttl", zip(uris, labels, parents, strict=True))
    for split, name in (("trn", "train"), ("tst", "test")):
        with gzip.open(folder / f"{name}.tsv.gz", "wt", encoding="utf-8") as file:
            for document in islice(read(source / f"{split}.json.gz"), most):
                found = " ".join(f"<{uris[at]}>" for at in document["target_ind"])
                file.write(f"{' '.join(text_of(document).split())}\t{found}\n")
    print(f"{folder}: vocabulary.ttl, train.tsv.gz, test.tsv.gz")


def make_full_texts(source: Path, folder: Path, most: int | None) -> None:
    """Write a vocabulary, and two files a document: its text, and URI and name of its labels."""
    labels = list(read(source / "lbl.json.gz"))
    uris = [f"http://eurovoc.europa.eu/{label['uid']}" for label in labels]
    known = set(uris)
    parents = [
        [uri for x in label["parents"] if (uri := f"http://eurovoc.europa.eu/{x}") in known]
        for label in labels
    ]
    folder.mkdir(parents=True, exist_ok=True)
    write_turtle(folder / "vocabulary.ttl", zip(uris, labels, parents, strict=True))
    for split, name in (("trn", "train"), ("dev", "dev"), ("tst", "test")):
        (folder / name).mkdir(exist_ok=True)
        for number, document in enumerate(islice(read(source / f"{split}.json.gz"), most)):
            path = folder / name / f"{number:05d}.txt"
            path.write_text(text_of(document) + "\n", encoding="utf-8")
            rows = [f"<{uris[at]}>\t{labels[at]['title']}\n" for at in document["target_ind"]]
            path.with_suffix(".tsv").write_text("".join(rows), encoding="utf-8")
    print(f"{folder}: vocabulary.ttl, train/, dev/, test/")


def read(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of a file."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def text_of(document: dict[str, Any]) -> str:
    """Return title and content."""
    return f"{document['title']}\n{document['content']}".strip()


def write_turtle(path: Path, concepts: Iterable[tuple[str, dict[str, Any], list[str]]]) -> None:
    """Write a SKOS vocabulary, from URI, label and the URIs of broader labels."""
    with path.open("w", encoding="utf-8") as file:
        file.write("@prefix skos: <http://www.w3.org/2004/02/skos/core#> .\n\n")
        for uri, label, parents in concepts:
            names = ", ".join(f"{quoted(label['title'])}@{x}" for x in LANGUAGES)
            lines = [f"<{uri}> a skos:Concept", f"skos:prefLabel {names}"]
            if label.get("alt"):
                others = ", ".join(f"{quoted(x)}@en" for x in label["alt"])
                lines.append(f"skos:altLabel {others}")
            if parents:
                lines.append(f"skos:broader {', '.join(f'<{parent}>' for parent in parents)}")
            file.write(" ;\n    ".join(lines) + " .\n")


def quoted(text: str) -> str:
    """Return a text as a literal of Turtle."""
    return f'"{text.translate(_ESCAPES)}"'


if __name__ == "__main__":
    main()
