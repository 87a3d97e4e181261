"""Rows of other programs on the leaderboard: each tuned on dev over a small grid of its own.

    python -m venv O; O/bin/pip install omikuji==0.5.2 numpy scipy
    python tests/bench/leaderboard/peers.py DATA/eurlex57k omikuji-bonsai --python O/bin/python \
        --work WORK

Every setting of the grid is trained on the training documents and ranked on dev; the one with the
highest P@5 there is trained for the test split, which is looked at once. All with one thread, on
Longtail's tf-idf features (`features.py`), of which the kind is a part of the grid.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from columns import KS, as_wide
from features import FEATURES, write_features
from row import BOARD, name_of, with_dev, write_row

from longtail.models.metrics import join_truth, precision_at
from longtail.training.assessment.compare import read_predictions
from longtail.training.data.dataset import Dataset, open_dataset

_PROGRAMS = Path(__file__).parent / "programs"


@dataclass(frozen=True, slots=True)
class Peer:
    """Another program.

    Attributes:
        title: Title of its row.
        version: What pip installs.
        program: The script that runs it.
        settings: The values of its grid, by setting.
    """

    title: str
    version: str
    program: str
    settings: dict[str, tuple[Any, ...]]


PEERS = {
    "omikuji-bonsai": Peer(
        "omikuji, Bonsai", "omikuji==0.5.2", "run_omikuji.py",
        {"linear_c": (0.5, 1.0, 2.0, 4.0, 8.0), "linear_loss_type": (0, 1), "beam_size": (30,),
         "cluster_balanced": (False,), "cluster_k": (100,), "max_depth": (3,)},
    ),
    "xr-linear": Peer(
        "PECOS XR-Linear", "libpecos==1.2.8", "run_xr_linear.py",
        {"scheme": ("tfn", "tfn+man"), "Cp": (0.25, 0.5, 1.0, 2.0, 4.0, 8.0), "Cn": (1.0,),
         "nr_splits": (16,), "beam_size": (50,)},
    ),
    "napkinxc-plt": Peer(
        "napkinXC, PLT", "napkinxc==0.7.2", "run_napkinxc.py",
        {"loss": ("log", "l2"), "liblinear_c": (0.5, 1.0, 8.0, 32.0), "arity": (2,),
         "max_leaves": (100,), "ensemble": (3,)},
    ),
}  # fmt: skip


def main() -> None:
    """Tune a peer on dev, and write its row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("--python", required=True, help="with the peer installed")
    parser.add_argument("--work", type=Path, required=True, help="folder for features and rankings")
    parser.add_argument("--features", nargs="*", default=list(FEATURES), choices=FEATURES)
    parser.add_argument("--fix", nargs="*", default=[], metavar="NAME=VALUE,VALUE",
                        help="settings of the grid that keep some of their values")  # fmt: skip
    parser.add_argument("--json", type=Path, default=BOARD, help="the leaderboard's file")
    chosen = parser.parse_args()
    peer, dataset = fixed(PEERS[chosen.peer], chosen.fix), open_dataset(chosen.data)
    tried = [
        try_setting(dataset, peer, kind, settings, chosen.work / "rankings" / chosen.peer, chosen)
        for kind, settings in grid_of(peer, chosen.features)
    ]
    best = max(tried, key=lambda each: each["P@5"])
    folder = chosen.work / "rankings" / chosen.peer
    ranking = folder / file_name("test", best["features"], best["settings"])
    costs = run(dataset, peer, best["features"], best["settings"], "test", ranking, chosen)
    costs["tuning_seconds"] = sum(each["costs"]["training_seconds"] for each in tried)
    about = {
        "name": peer.title,
        "version": peer.version,
        "settings": f"{best['features']}; {describe(best['settings'], PEERS[chosen.peer])}",
        "seeds": [0],
    }
    write_row(
        chosen.json, dataset, ranking, Path(best["path"]),
        about=about, costs=costs, command=command_of(chosen),
    )  # fmt: skip


def command_of(chosen: argparse.Namespace) -> str:
    """Return the command of the row, with names in place of one machine's folders."""
    features = (
        "" if chosen.features == list(FEATURES) else f" --features {' '.join(chosen.features)}"
    )
    features += f" --fix {' '.join(chosen.fix)}" if chosen.fix else ""
    return (
        f"python tests/bench/leaderboard/peers.py {name_of(chosen.data)} {chosen.peer} "
        f"--python PYTHON --work WORK{features}"
    )


def fixed(peer: Peer, fix: list[str]) -> Peer:
    """Return a peer with a smaller grid.

    Raises:
        SystemExit: A setting or a value is none of the grid.
    """
    settings = dict(peer.settings)
    for name, _, value in (each.partition("=") for each in fix):
        kept, known = value.split(","), [str(x) for x in peer.settings.get(name, ())]
        if not set(kept) <= set(known):
            raise SystemExit(
                f"--fix {name}={value}: the grid of {peer.title} has "
                f"{', '.join(known) or 'no such setting'}; give some of its values"
            )
        settings[name] = tuple(x for x in settings[name] if str(x) in kept)
    return replace(peer, settings=settings)


def grid_of(peer: Peer, features: list[str]) -> list[tuple[str, dict[str, Any]]]:
    """Return all kinds of features with all settings."""
    every = [dict(zip(peer.settings, x, strict=True)) for x in product(*peer.settings.values())]
    return [(kind, settings) for kind in features for settings in every]


def describe(settings: dict[str, Any], peer: Peer) -> str:
    """Return the settings of which the grid has several values."""
    return ", ".join(f"{k}={v}" for k, v in settings.items() if len(peer.settings[k]) > 1)


def try_setting(
    dataset: Dataset, peer: Peer, kind: str, settings: dict[str, Any], folder: Path, chosen: Any
) -> dict[str, Any]:
    """Train a setting, rank dev with it, and return its precision, costs and ranking."""
    path = folder / file_name("dev", kind, settings)
    costs = run(dataset, peer, kind, settings, "dev", path, chosen)
    truth = with_dev(dataset).split("dev").scan().labels
    ranking = read_predictions(path, *truth.shape)
    precision = precision_at(join_truth(as_wide(ranking, max(KS)).labels, truth), 5)
    print(f"{kind} {settings}: dev P@5 {100 * precision:.2f}, {costs}", flush=True)
    return {
        "features": kind, "settings": settings, "P@5": precision, "costs": costs, "path": str(path),
    }  # fmt: skip


def file_name(split: str, kind: str, settings: dict[str, Any]) -> str:
    """Return where the ranking of a setting lies; what another setting ranked is never taken."""
    return f"{'-'.join([split, kind, *map(str, settings.values())])}.npz"


def run(
    dataset: Dataset,
    peer: Peer,
    kind: str,
    settings: dict[str, Any],
    split: str,
    path: Path,
    chosen: Any,
) -> dict[str, float]:
    """Train and rank in a process of its own; what is there already is kept."""
    costs_path = path.with_suffix(".json")
    if not costs_path.exists():
        folder = chosen.work / kind / split
        features = write_features(dataset, kind, split, folder)
        path.parent.mkdir(parents=True, exist_ok=True)
        program = str(_PROGRAMS / peer.program)
        command = [chosen.python, program, str(folder), str(path), json.dumps(settings)]
        with path.with_suffix(".log").open("w") as log:
            done = subprocess.run(
                command, stdout=subprocess.PIPE, stderr=log, text=True, check=True
            )
        costs = json.loads(done.stdout.splitlines()[-1])
        costs["training_seconds"] += features["seconds"]
        costs["milliseconds"] += features["milliseconds"]
        costs_path.write_text(json.dumps(costs))
    found: dict[str, float] = json.loads(costs_path.read_text())
    return found


if __name__ == "__main__":
    main()
