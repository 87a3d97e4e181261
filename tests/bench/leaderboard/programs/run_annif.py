"""Trains Annif's projects in a folder, weighs them on dev as its ensemble does, and ranks test.

Run by a Python that has annif and omikuji, in a folder with projects.cfg, vocabulary.ttl and
train.tsv, dev.tsv, test.tsv; `annif_row.py` calls it. NLTK's sentence splitter wants data that is
fetched when it is first used; where there is none it gets empty lists, and knows no abbreviations.
"""

import json
import os
import resource
import subprocess
import sys
import time
from itertools import product
from pathlib import Path

_LISTS = ("abbrev_types.txt", "collocations.tab", "ortho_context.tab", "sent_starters.txt")
_punkt = Path("nltk", "tokenizers", "punkt_tab", "english")
_punkt.mkdir(parents=True, exist_ok=True)
for name in _LISTS:
    (_punkt / name).touch()
os.environ["NLTK_DATA"] = str(Path("nltk").resolve())
os.environ["ANNIF_PROJECTS"] = "projects.cfg"

import annif  # noqa: E402 - reads the environment
from annif.corpus import DocumentFileTSV  # noqa: E402
from annif.registry import AnnifRegistry  # noqa: E402
from annif.suggestion import SuggestionBatch  # noqa: E402
from writing import write_predictions  # noqa: E402

WIDTH, BATCH = 20, 32
_SELF = resource.RUSAGE_SELF
WEIGHTS = ((1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0), (0, 3, 1), (0, 2, 1), (0, 1, 1), (2, 2, 1),
           (1, 1, 1))  # fmt: skip
"""Weights of Parabel, Bonsai and MLLM."""


def cpu_seconds(who):
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def suggest(project, path):
    """Return the suggestions for all documents of a file, and CPU milliseconds a text."""
    documents = list(DocumentFileTSV(path, project.subjects, require_subjects=False).documents)
    project.suggest(documents[:1])  # loads the model
    started = time.process_time()
    batches = [
        project.suggest(documents[start : start + BATCH])
        for start in range(0, len(documents), BATCH)
    ]
    spent = time.process_time() - started
    return batches, [document.subject_set for document in documents], 1000 * spent / len(documents)


def averaged(sources, weights):
    """Return the ensemble's suggestions: those of Annif's own averaging."""
    used = [(batches, weight) for batches, weight in zip(sources, weights, strict=True) if weight]
    return [
        SuggestionBatch.from_averaged([batches[at] for batches, _ in used], [w for _, w in used])
        .filter(limit=WIDTH)
        for at in range(len(sources[0]))
    ]  # fmt: skip


def precision(batches, gold, k=5):
    found = [result for batch in batches for result in batch]
    hits = sum(
        len({s.subject_id for s in list(result)[:k]} & set(true))
        for result, true in zip(found, gold, strict=True)
    )
    return hits / (k * len(gold))


def write(path, batches, column_of, subjects):
    rows = [
        [(column_of[subjects[s.subject_id].uri], s.score) for s in result]
        for batch in batches
        for result in batch
    ]
    write_predictions(path, rows, len(column_of))


def train(projects):
    """Load the vocabulary and train all projects; return the CPU seconds of each."""
    program = str(Path(sys.executable).with_name("annif"))
    subprocess.run([program, "load-vocab", "subjects", "vocabulary.ttl"], check=True)
    spent = {}
    for project in projects:
        started = cpu_seconds(resource.RUSAGE_CHILDREN)
        subprocess.run([program, "train", "-j", "1", project, "train.tsv"], check=True)
        spent[project] = cpu_seconds(resource.RUSAGE_CHILDREN) - started
    return spent


def main():
    column_of = {uri: at for at, uri in enumerate(json.loads(Path("uris.json").read_text()))}
    ngrams = json.loads(sys.argv[1])
    members = {n: (f"parabel-{n}", f"bonsai-{n}", "mllm") for n in ngrams}
    trained = train(sorted({name for names in members.values() for name in names}))
    app = annif.create_flask_app()
    with app.app_context():
        app.annif_registry = AnnifRegistry("projects.cfg", "data", init_projects=False)
        projects = {name: app.annif_registry.get_project(name) for name in trained}
        on_dev = {name: suggest(project, "dev.tsv") for name, project in projects.items()}
        tried = []
        for n, weights in product(ngrams, WEIGHTS):
            batches = averaged([on_dev[name][0] for name in members[n]], weights)
            tried.append((precision(batches, on_dev["mllm"][1]), n, weights, batches))
        _, n, weights, batches = max(tried, key=lambda each: each[0])
        subjects = projects["mllm"].subjects
        write("dev.npz", batches, column_of, subjects)
        kept = [name for name, weight in zip(members[n], weights, strict=True) if weight]
        found = {name: suggest(projects[name], "test.tsv") for name in kept}
        sources = [found[name][0] for name in kept]
        write("test.npz", averaged(sources, [w for w in weights if w]), column_of, subjects)
    peaks = (resource.getrusage(who).ru_maxrss for who in (_SELF, resource.RUSAGE_CHILDREN))
    print(json.dumps({
        "chosen": [n, list(weights)],
        "training_seconds": sum(trained[name] for name in kept),
        "tuning_seconds": sum(trained.values()),
        "milliseconds": sum(each[2] for each in found.values()),
        "memory_gib": max(peaks) / 2**20,
    }))  # fmt: skip


main()
