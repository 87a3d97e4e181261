# ruff: noqa: T201
"""Trains the demo without an encoder, as installed, and compares it with the committed record.

    python tests/contracts/demo_digest.py          # in any folder, with any longtail installed
    python tests/contracts/demo_digest.py --write  # after a change that alters models

A release runs it with each wheel on each system before anything is published. NumPy's logarithms
and BLAS differ in the last digit between kinds of processors, and with them the digest. Where it is
another one, the figures on dev and the first labels of a text must be those of the record.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "docs" / "results" / "demo-digest.json"
OPTIONS = ("--without-encoder",)
TEXT = "Duties on imports of olive oil"
TOLERANCE = 1e-3
"""Tolerance of a dev figure, as a fraction: two hits of 2,000 for P@5, none of 400 for P@1."""


def main() -> None:
    """Train, ask once, and compare."""
    from longtail.training.evaluation.record import make_record, write_record

    found, seed = trained()
    if "--write" in sys.argv:
        sys.path.insert(0, str(ROOT))
        from docs.generation.leaderboard import code_digest

        write_record(RECORD, make_record({**found, "code": code_digest()}, seeds=[seed]))
        return
    expected = json.loads(RECORD.read_text("utf-8"))["figures"]
    if found["digest"] == expected["digest"]:
        print("The digest is that of the record.")
    elif differences := different(found, expected):
        sys.exit(f"{RECORD}: other than recorded: {'; '.join(differences)}")
    else:
        print(f"The figures are those of the record, the digest is not: {expected['digest']}")


def trained() -> tuple[dict[str, object], int]:
    """Return digest, figures on dev and first labels of a model that is trained here; its seed."""
    import longtail

    with tempfile.TemporaryDirectory() as folder:
        registry = Path(folder, "registry")
        command = [sys.executable, "-m", "longtail", "train", str(longtail.DEMO_DATA), *OPTIONS]
        command += ["--registry", str(registry), "--work", str(Path(folder, "work"))]
        subprocess.run(command, check=True, cwd=folder)
        manifest = longtail.Registry(registry).open().manifest
        labels = longtail.load(registry).predict(TEXT, k=3).labels
    names = [label.name for label in labels]
    print(f"{longtail.__file__}: {manifest.digest}; {TEXT}: {', '.join(names)}")
    figures = {name: found["all"] for name, found in manifest.metrics["dev"].items()}
    found = {"digest": manifest.digest, "dev": figures, "first labels": names}
    return found, manifest.training["seed"]


def different(found: dict, expected: dict) -> list[str]:
    """Return in words what differs by more than the tolerance."""
    if found["dev"].keys() != expected["dev"].keys():
        return [f"scorers {', '.join(found['dev'])}, not {', '.join(expected['dev'])}"]
    differences = [
        f"{scorer} {measure}: {found['dev'][scorer][measure]}, expected {value}"
        for scorer, figures in expected["dev"].items()
        for measure, value in figures.items()
        if not abs(found["dev"][scorer][measure] - value) <= TOLERANCE
    ]
    if found["first labels"] != expected["first labels"]:
        differences.append(f"labels {found['first labels']}, not {expected['first labels']}")
    return differences


if __name__ == "__main__":
    main()
