# ruff: noqa: T201
"""Trains the demo without an encoder, as installed, and compares its digest with the committed one.

    python tests/contracts/demo_digest.py          # in any folder, with any longtail installed
    python tests/contracts/demo_digest.py --write  # after a change that alters models

A release runs it with each wheel on each system before anything is published.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

RECORD = Path(__file__).parents[2] / "docs" / "results" / "demo-digest.json"
OPTIONS = ("--without-encoder",)


def main() -> None:
    """Train, ask once, and compare."""
    import longtail

    with tempfile.TemporaryDirectory() as folder:
        registry = Path(folder, "registry")
        command = [sys.executable, "-m", "longtail", "train", str(longtail.DEMO_DATA), *OPTIONS]
        command += ["--registry", str(registry), "--work", str(Path(folder, "work"))]
        subprocess.run(command, check=True, cwd=folder)
        digest = longtail.Registry(registry).open().manifest.digest
        labels = longtail.load(registry).predict("Duties on imports of olive oil", k=3).labels
    print(f"{longtail.__file__}: {digest}; olive oil: {', '.join(x.name for x in labels)}")
    if "--write" in sys.argv:
        command = f"longtail train training/demo_data {' '.join(OPTIONS)}"
        content = json.dumps({"command": command, "digest": digest}, indent=1)
        RECORD.write_text(content + "\n", encoding="utf-8", newline="\n")
    elif digest != (expected := json.loads(RECORD.read_text("utf-8"))["digest"]):
        sys.exit(f"{RECORD}: digest is {digest}, expected {expected}; a change of models writes it")


if __name__ == "__main__":
    main()
