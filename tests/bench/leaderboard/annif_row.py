"""Annif's ensemble of Parabel, Bonsai and MLLM on the leaderboard, its weights chosen on dev.

    python -m venv A; A/bin/pip install annif==1.4.3 omikuji==0.5.2
    python tests/bench/leaderboard/annif_row.py training/demo_data --python A/bin/python \
        --work WORK

The texts are Annif's to read (Snowball stems, words or phrases of two), with the vocabulary's other
names and broader labels, which MLLM matches.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from row import BOARD, name_of, with_dev, write_row

from longtail.models.labels.catalogue import LabelCatalogue
from longtail.training.data.dataset import Dataset, open_dataset

_TREE = """[{name}-{ngram}]
name={name}
language=en
backend=omikuji
analyzer=snowball(english)
vocab=subjects
limit=100
ngram={ngram}
min_df=2
{more}
"""
_MLLM = """[mllm]
name=MLLM
language=en
backend=mllm
analyzer=snowball(english)
vocab=subjects
limit=100
"""
_BONSAI = "cluster_balanced=False\ncluster_k=100\nmax_depth=3"
_NGRAMS = [1, 2]
_PROGRAM = Path(__file__).parent / "programs" / "run_annif.py"


def main() -> None:
    """Write the row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--python", type=Path, required=True, help="with annif and omikuji")
    parser.add_argument("--ngrams", type=int, nargs="+", default=_NGRAMS)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--json", type=Path, default=BOARD, help="the leaderboard's file")
    chosen = parser.parse_args()
    dataset, folder = open_dataset(chosen.data), chosen.work / "annif"
    folder.mkdir(parents=True, exist_ok=True)
    write_forms(dataset, folder, chosen.ngrams)
    # Links of an environment lead to the Python that it was made of.
    command = [str(chosen.python.absolute()), str(_PROGRAM.resolve()), json.dumps(chosen.ngrams)]
    with (folder / "log").open("w") as log:
        done = subprocess.run(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=log, text=True, check=True
        )
    found = json.loads(done.stdout.splitlines()[-1])
    ngram, weights = found.pop("chosen")
    about = {
        "name": "Annif, ensemble with MLLM",
        "version": "annif==1.4.3 omikuji==0.5.2",
        "settings": f"{ngram}-grams, Snowball stems; Parabel, Bonsai, MLLM weighted {weights}",
        "seeds": [],
    }
    fewer = "" if chosen.ngrams == _NGRAMS else f" --ngrams {' '.join(map(str, chosen.ngrams))}"
    write_row(
        chosen.json, dataset, folder / "test.npz", folder / "dev.npz", about=about, costs=found,
        command=f"python tests/bench/leaderboard/annif_row.py {name_of(chosen.data)} "
        f"--python PYTHON --work WORK{fewer}",
    )  # fmt: skip


def write_forms(dataset: Dataset, folder: Path, ngrams: Sequence[int]) -> None:
    """Write projects, vocabulary and documents as Annif reads them."""
    trees = [
        _TREE.format(name=name, ngram=ngram, more=more)
        for ngram in ngrams
        for name, more in (("parabel", ""), ("bonsai", _BONSAI))
    ]
    (folder / "projects.cfg").write_text("\n".join([*trees, _MLLM]), encoding="utf-8")
    uris = [f"http://example.org/label/{row}" for row in range(len(dataset.labels))]
    (folder / "uris.json").write_text(json.dumps(uris))
    (folder / "vocabulary.ttl").write_text(turtle_of(dataset.labels, uris), encoding="utf-8")
    learned = with_dev(dataset)
    for split in ("train", "dev", "test"):
        documents, truth = learned.split(split).texts(), learned.split(split).scan().labels
        with (folder / f"{split}.tsv").open("w", encoding="utf-8") as file:
            for row, text in enumerate(documents):
                carried = truth.indices[truth.indptr[row] : truth.indptr[row + 1]]
                listed = " ".join(f"<{uris[label]}>" for label in carried)
                file.write(f"{' '.join(text.split())}\t{listed}\n")


def turtle_of(catalogue: LabelCatalogue, uris: Sequence[str]) -> str:
    """Return a SKOS vocabulary of the labels, their other names and what stands above them."""
    prefix = "@prefix skos: <http://www.w3.org/2004/02/skos/core#> .\n"
    return prefix + "\n".join(
        f"<{uri}> a skos:Concept ; skos:prefLabel {json.dumps(label.name)}@en"
        + "".join(f" ; skos:altLabel {json.dumps(name)}@en" for name in label.alternative_names)
        + "".join(
            f" ; skos:broader <{uris[row]}>"
            for row in map(catalogue.row_of_id, label.broader)
            if row is not None
        )
        + " ."
        for uri, label in zip(uris, catalogue, strict=True)
    )


if __name__ == "__main__":
    main()
