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

RECORD = Path(__file__).parents[2] / "docs" / "results" / "demo-digest.json"
OPTIONS = ("--without-encoder",)
TEXT = "Duties on imports of olive oil"
TOLERANCE = 1e-3
"""Of a share on dev, where two labels of 400 documents may swap; of P@5 two hits."""


def main() -> None:
    """Train, ask once, and compare."""
    found = trained()
    if "--write" in sys.argv:
        content = json.dumps(found, indent=1)
        RECORD.write_text(content + "\n", encoding="utf-8", newline="\n")
        return
    expected = json.loads(RECORD.read_text("utf-8"))
    if found["digest"] == expected["digest"]:
        print("The digest is that of the record.")
    elif differences := different(found, expected):
        sys.exit(f"{RECORD}: other than recorded: {'; '.join(differences)}")
    else:
        print(f"The figures are those of the record, the digest is not: {expected['digest']}")


def trained() -> dict[str, object]:
    """Return digest, figures and first labels of a model that is trained here."""
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
    return {
        "command": f"longtail train training/demo_data {' '.join(OPTIONS)}",
        "digest": manifest.digest,
        "figures": {name: found["all"] for name, found in manifest.metrics["dev"].items()},
        "first labels": names,
    }


def different(found: dict, expected: dict) -> list[str]:
    """Return in words what differs by more than the tolerance."""
    differences = [
        f"{scorer} {measure}: {found['figures'][scorer][measure]}, expected {value}"
        for scorer, figures in expected["figures"].items()
        for measure, value in figures.items()
        if not abs(found["figures"][scorer][measure] - value) <= TOLERANCE
    ]
    if found["first labels"] != expected["first labels"]:
        differences.append(f"labels {found['first labels']}, not {expected['first labels']}")
    return differences


if __name__ == "__main__":
    main()
