"""The columns of the leaderboard against plain Python, and its rows."""

from __future__ import annotations

import gzip
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array, save_npz, vstack

from longtail.models.errors import ConfigError, DataError
from longtail.models.ranking.top_k import NO_LABEL, Ranking
from longtail.models.vocabulary.reading import read_vocabulary
from longtail.training.assessment.compare import read_predictions, write_predictions
from longtail.training.data.dataset import open_dataset

FOLDER = Path(__file__).parent / "leaderboard"
sys.path += [str(FOLDER), str(FOLDER / "programs")]
import annif_row  # noqa: E402 - scripts, which find each other in their folder
import columns  # noqa: E402
import evidence  # noqa: E402
import peers  # noqa: E402
import row  # noqa: E402
import writing  # noqa: E402
from board import read_rows  # noqa: E402

from docs.generation.leaderboard import OURS, code_digest, tables_of  # noqa: E402
from docs.render import markdown_of  # noqa: E402

DEMO = Path(__file__).parents[2] / "training" / "demo_data"


def made_up(seed: int, num_documents: int = 40, num_labels: int = 12, width: int = 12):
    """Return a ranking whose scores are probabilities, and the truth of its documents."""
    random = np.random.default_rng(seed)
    p = random.random((num_documents, num_labels)).astype(np.float32).round(2)  # with ties
    labels = np.argsort(-p, axis=1, kind="stable")[:, :width]
    truth = csr_array((random.random(p.shape) < p).astype(np.float32))
    return Ranking(labels, np.take_along_axis(p, labels, axis=1)), truth


@pytest.mark.parametrize("seed", range(4))
def test_the_threshold_is_the_best_of_all_and_micro_f1_is_counted(seed):
    ranking, truth = made_up(seed)
    dense = truth.toarray()

    def f1(threshold: float) -> float:
        answered = [
            (place, label)
            for place in range(len(dense))
            for label, score in zip(ranking.labels[place], ranking.scores[place], strict=True)
            if score >= threshold
        ]
        hits = sum(dense[pair] for pair in answered)
        return float(2 * hits / (len(answered) + dense.sum()))

    threshold = columns.best_threshold(ranking, truth)
    assert columns.micro_f1(ranking, truth, threshold) == pytest.approx(f1(threshold))
    assert f1(threshold) == pytest.approx(max(map(f1, np.unique(ranking.scores))))


def test_scores_that_are_no_probabilities_have_no_ece_until_dev_fits_them():
    ranking, truth = made_up(1, num_documents=400)
    far = Ranking(ranking.labels, 10 * ranking.scores)
    alone = columns.probability_columns(far, truth, None, None)
    assert alone == {"ECE@5": None, "ECE@5, fitted on dev": None, "micro-F1": None}
    dev, dev_truth = made_up(2, num_documents=400)
    fitted = columns.probability_columns(
        far, truth, (Ranking(dev.labels, 10 * dev.scores), dev_truth), None
    )
    same = columns.probability_columns(ranking, truth, (dev, dev_truth), None)
    assert same["ECE@5"] is not None
    for name in ("ECE@5, fitted on dev", "micro-F1"):
        assert fitted[name] == pytest.approx(same[name])


def test_padding_is_no_answer():
    ranking, truth = made_up(3)
    labels, scores = ranking.labels.copy(), ranking.scores.copy()
    labels[:, 1:], scores[:, 1:] = NO_LABEL, -np.inf
    found, is_true = columns.first_pairs(Ranking(labels, scores), truth, 5)
    assert len(found) == len(is_true) == len(labels)


def test_documents_of_equal_texts_are_drawn_together():
    once, truth = made_up(4)
    twice = Ranking(np.tile(once.labels, (2, 1)), np.tile(once.scores, (2, 1)))
    texts = np.arange(len(once.labels))

    def interval(ranking: Ranking, truth: csr_array, texts: np.ndarray) -> list[float]:
        counts = np.asarray(truth.sum(axis=0), dtype=np.int64)
        judged = columns.Judged(truth, counts, truth.shape[0], None, texts)
        return columns.document_intervals(ranking, judged)["P@5"]

    expected = interval(once, truth, texts)
    both = vstack([truth, truth], format="csr")
    assert interval(twice, both, np.tile(texts, 2)) == pytest.approx(expected)
    apart = interval(twice, both, np.arange(2 * len(texts)))
    assert np.ptp(apart) < 0.9 * np.ptp(expected)  # as if it were twice as many documents


@pytest.fixture(scope="module")
def oracle(tmp_path_factory):
    """The demo, and files of predictions of its dev and test split that are the truth.

    The document with the most labels has wrong ones behind them, so that the files are ten wide.
    """
    dataset, folder, files = open_dataset(DEMO), tmp_path_factory.mktemp("oracle"), {}
    for split in ("dev", "test"):
        truth = dataset.split(split).scan().labels
        carried = [row.tolist() for row in np.split(truth.indices, truth.indptr[1:-1])]
        longest = max(carried, key=len)
        assert len(longest) >= 5
        longest += [x for x in range(20) if x not in longest][: max(0, 10 - len(longest))]
        labels = np.array([(row + [NO_LABEL] * 10)[:10] for row in carried])
        scores = np.where(labels == NO_LABEL, -np.inf, 0.75).astype(np.float32)
        files[split] = folder / f"{split}.npz"
        write_predictions(files[split], Ranking(labels, scores), truth.shape[1])
    return dataset, files


def write_oracle(oracle, path, *, costs=None, **changes):
    dataset, files = oracle
    row.write_row(
        path, dataset, changes.pop("test", files["test"]), changes.pop("dev", files["dev"]),
        about={"name": "oracle", "version": "1", "settings": "none", **changes},
        costs=dict.fromkeys(row.COSTS) | (costs or {}), command="python x",
    )  # fmt: skip


def test_a_row_is_a_record_of_everything(oracle, tmp_path):
    path = tmp_path / "board.json"
    write_oracle(oracle, path)
    (record,) = read_rows(path)
    figures = record["figures"]
    assert (record["command"], record["set"]) == ("python x", "demo_data")
    assert figures["bands"]["all"]["P@1"] == 1
    assert figures["hierarchical"]["hP@5"] == 1 > figures["hierarchical"]["hR@5"] > 0
    assert figures["intervals"]["P@1"] == [1, 1]
    assert figures["probabilities"]["ECE@5"] == pytest.approx(0.25)
    assert figures["probabilities"]["ECE@5, fitted on dev"] == pytest.approx(0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": "a\nb"}, "--name: got 'a\\\\nb', expected one line"),
        ({"name": " "}, "--name: got ' ', expected one line of 1 to 80"),
        ({"name": "x" * 81}, "1 to 80 characters"),
        ({"settings": "a <!-- end --> b"}, "without '<!--'"),
        ({"version": ""}, "--version: got ''"),
        ({"costs": {"training_seconds": -5.0}}, "--training-seconds: got -5.0, expected a number"),
        ({"costs": {"memory_gib": float("nan")}}, "--memory-gib: got nan"),
        ({"costs": {"milliseconds": float("inf")}}, "--milliseconds: got inf"),
    ],
)
def test_what_cannot_stand_in_a_table_is_refused(oracle, tmp_path, changes, words):
    with pytest.raises(ConfigError, match=words):
        write_oracle(oracle, tmp_path / "row.json", **changes)
    assert not (tmp_path / "row.json").exists()


def test_a_row_replaces_that_of_its_name_and_a_set_is_of_one_corpus(oracle, tmp_path):
    path = tmp_path / "board.json"
    for settings in ("none", "again"):
        write_oracle(oracle, path, settings=settings)
    write_oracle(oracle, path, name="other")
    rows = read_rows(path)
    assert [(x["figures"]["name"], x["figures"]["settings"]) for x in rows] == [
        ("oracle", "again"),
        ("other", "none"),
    ]
    path.write_text(path.read_text().replace(oracle[0].fingerprint, "another"))
    with pytest.raises(ConfigError, match=r"board.json: .*'demo_data' are of another corpus"):
        write_oracle(oracle, path)


def test_rows_of_older_code_are_marked_and_stand_last(oracle, tmp_path):
    path = tmp_path / "board.json"
    write_oracle(oracle, path, name="a peer")
    write_oracle(oracle, path, name="old", of=OURS, code="0" * 12)
    write_oracle(oracle, path, name="new", of=OURS, code=code_digest())
    data, mode = DEMO, "no encoder"
    assert not evidence.is_measured(path, data, mode)
    evidence.mark_outdated(path)
    lines = markdown_of(tables_of(path)["demo_data"]).splitlines()[2:]
    assert [line.split(" | ")[0] for line in lines] == ["| a peer", "| new", "| old"]
    assert [line.endswith(", older |") for line in lines] == [False, False, True]
    write_oracle(oracle, path, name=evidence.MODES[mode][0], of=OURS, code=code_digest())
    assert evidence.is_measured(path, data, mode)


def test_calibration_by_band_is_counted():
    ranking, truth = made_up(8, num_documents=300)
    counts = np.array([0, 0, 1, 2, 9, 10, 50, 99, 100, 500, 1, 7])
    found = evidence.calibration_by_band(ranking, truth, counts)
    pairs = [
        (counts[label], score, truth[row, label] > 0)
        for row, (labels, scores) in enumerate(zip(ranking.labels, ranking.scores, strict=True))
        for label, score in zip(labels[:5], scores[:5], strict=True)
    ]
    for band, (least, most) in {"0": (0, 0), "2-9": (2, 9), "100+": (100, 1000)}.items():
        own = [(score, hit) for count, score, hit in pairs if least <= count <= most]
        assert found[band]["right"] == pytest.approx(np.mean([hit for _, hit in own]))
        assert found[band]["said"] == pytest.approx(np.mean([score for score, _ in own]))
        assert found[band]["ECE"] < 0.2 and found[band]["chance"] < 0.2


@pytest.mark.slow
def test_a_corpus_is_measured_and_its_tables_are_made(tiny_corpus, tmp_path):
    board, mode = tmp_path / "board.json", "no encoder"
    evidence.measure(tiny_corpus, mode, tmp_path / "work", board)
    assert evidence.is_measured(board, tiny_corpus, mode)
    (record,) = read_rows(board)
    figures, tables = record["figures"], tables_of(board)
    of_blend = figures["otherwise"]["`ensemble`"]
    for measure in ("P@1", "P@5", "PSP@5"):  # the same ranking, measured in another way
        assert of_blend[measure] == pytest.approx(figures["bands"]["all"][measure])
    assert {row[2] for row in tables["otherwise"]["rows"]} >= {"`sparse`", "tail dial 0.4"}
    assert all(0 < x["right"] <= 1 and x["found"] <= 1 for x in figures["promises"].values())
    assert len(tables["promises"]["rows"]) == len(figures["promises"])
    (mode_row,) = tables["modes"]["rows"]
    assert mode_row[:2] == [tiny_corpus.name, evidence.MODES[mode][0]]
    names = [column["name"] for column in tables["parts"]["columns"]]
    of_part = {row[0]: dict(zip(names, row, strict=True)) for row in tables["parts"]["rows"]}
    for name, cells in figures["parts"].items():
        of_corpus = {f"{tiny_corpus.name}: {measure}": cell for measure, cell in cells.items()}
        assert of_corpus.items() <= of_part[name].items()
    blend = figures["parts"]["blend"]
    assert set(blend) == {"P@5", "nDCG@5", "PSP@5", "R@10 (0)", "R@10 (hidden)"}
    assert abs(figures["parts"]["blend without names"]["P@5"]["mean"]) < blend["P@5"]["mean"]


def test_stages_of_the_trial_of_an_encoder_are_counted_once(tmp_path):
    seconds = {"sparse": 100, "label vectors": 20, "document vectors-trial": 30}
    seconds |= {"encoder trial": 60, "bundle": 1}  # 10 s of it are its own
    lines = [
        {"stage": x, "wall_s": s, "cpu_s": 2 * s, "peak_rss_bytes": 2**30, "is_done": True}
        for x, s in seconds.items()
    ]
    (tmp_path / "stages.jsonl").write_text("\n".join(map(json.dumps, lines)), "utf-8")
    costs = evidence.training_costs(tmp_path)
    assert (costs["training_wall_seconds"], costs["training_seconds"]) == (161, 322)


def test_names_stand_in_tables_as_they_are(oracle, tmp_path):
    path = tmp_path / "board.json"
    write_oracle(oracle, path, name="a|b `c` <i>")
    cells = markdown_of(tables_of(path)["demo_data"]).splitlines()[-1]
    assert cells.startswith(r"| a\|b \`c\` &lt;i> |")


def test_another_corpus_of_the_same_name_is_refused_before_it_is_trained(oracle, tmp_path):
    board, other = tmp_path / "board.json", tmp_path / "demo_data"
    write_oracle(oracle, board)
    shutil.copytree(DEMO, other)
    test = next(other.glob("tst*"))
    test.write_bytes(test.read_bytes() + gzip.compress(b""))
    with pytest.raises(ConfigError, match="'demo_data' are of another corpus than this one"):
        evidence.measure_missing([(other, "no encoder")], tmp_path / "work", board)
    assert not (tmp_path / "work").exists()


def test_a_file_that_is_no_leaderboard_is_named(tmp_path):
    for text in ("not json", "[]", '{"rows"'):
        (tmp_path / "b.json").write_text(text, "utf-8")
        with pytest.raises(ConfigError, match=r"b\.json: can't be read as a leaderboard"):
            read_rows(tmp_path / "b.json")


def test_a_row_of_longtail_is_not_replaced_by_predictions(oracle, tmp_path):
    path = tmp_path / "board.json"
    write_oracle(oracle, path, name="Longtail", of=OURS, code="0")
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="'Longtail' is a row of Longtail"):
        write_oracle(oracle, path, name="Longtail")
    assert path.read_bytes() == before


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_scores_that_are_no_numbers_are_refused(oracle, tmp_path, wrong):
    dataset, files = oracle
    ranking = read_predictions(files["test"], *dataset.split("test").scan().labels.shape)
    scores = ranking.scores.copy()
    scores[3, 1] = wrong
    write_predictions(tmp_path / "n.npz", Ranking(ranking.labels, scores), len(dataset.labels))
    with pytest.raises(DataError, match=r"n\.npz: document 3 has the score (nan|inf) at place 1"):
        write_oracle(oracle, tmp_path / "row.json", test=tmp_path / "n.npz")


def test_too_few_labels_and_another_scale_are_refused(oracle, tmp_path):
    dataset, files = oracle
    ranking = read_predictions(files["test"], *dataset.split("test").scan().labels.shape)
    few, far = tmp_path / "few.npz", tmp_path / "far.npz"
    write_predictions(few, ranking.first(4), len(dataset.labels))
    write_predictions(far, Ranking(ranking.labels, ranking.scores - 5), len(dataset.labels))
    with pytest.raises(DataError, match=r"few.npz: at most 4 labels a document; expected 10"):
        write_oracle(oracle, tmp_path / "row.json", test=few)
    with pytest.raises(DataError, match=r"far.npz: 100% of the scores are outside of 0.75 to 0.75"):
        write_oracle(oracle, tmp_path / "row.json", test=far)


def test_a_person_is_told_in_a_line(tmp_path, monkeypatch):
    options = ["--test", "no.npz", "--name", "x", "--command", "c", "--version", "1"]
    file = str(tmp_path / "board.json")
    monkeypatch.setattr(sys, "argv", ["row.py", str(DEMO), *options, "--json", file])
    with pytest.raises(SystemExit, match=r"Error: no.npz: can't be used as a ranking"):
        row.main()


def test_a_grid_is_every_setting_with_every_kind_of_features():
    peer = peers.PEERS["omikuji-bonsai"]
    grid = peers.grid_of(peer, ["words", "phrases"])
    assert len(grid) == 2 * 5 * 2
    assert len({json.dumps(each) for each in grid}) == len(grid)
    smaller = peers.fixed(peer, ["linear_loss_type=0", "linear_c=0.5,1.0,2.0"])
    assert len(peers.grid_of(smaller, ["words"])) == 3
    assert "linear_c=1.0" in peers.describe(peers.grid_of(smaller, ["words"])[1][1], smaller)
    for fix in ("linear_c=3", "linear_c=0.5,3", "c=1", "linear_c"):
        with pytest.raises(SystemExit, match=f"--fix {fix.split('=')[0]}="):
            peers.fixed(peer, [fix])


def test_each_setting_has_a_file_of_its_own_for_each_split():
    grid = peers.grid_of(peers.PEERS["xr-linear"], ["words", "phrases"])
    names = {peers.file_name(split, *each) for split in ("dev", "test") for each in grid}
    assert len(names) == 2 * len(grid)


def test_annif_reads_every_name_and_every_document(tmp_path):
    dataset = open_dataset(DEMO)
    annif_row.write_forms(dataset, tmp_path, [1])
    concepts = read_vocabulary(tmp_path / "vocabulary.ttl").concepts
    assert len(concepts) == len(dataset.labels)
    of_id = {concept.id: concept for concept in concepts}
    for place, label in enumerate(dataset.labels):
        concept = of_id[f"http://example.org/label/{place}"]
        assert concept.names == {"en": label.name}
        assert {*concept.other_names.get("en", ()), label.name} == {
            *label.alternative_names, label.name,
        }  # fmt: skip
    lines = (tmp_path / "dev.tsv").read_text("utf-8").splitlines()
    truth = dataset.split("dev").scan().labels
    assert [line.count("\t") for line in lines] == [1] * truth.shape[0]
    assert sum(line.count("<http://example.org/label/") for line in lines) == truth.nnz


def test_what_a_peer_writes_is_what_compare_reads(tmp_path):
    truth = made_up(7)[1]
    for name in ("X", "Y", "judged"):
        save_npz(tmp_path / f"{name}.npz", truth)
    output = str(tmp_path / "test.npz")
    features, labels, judged, settings, path = writing.read(
        ["run.py", str(tmp_path), output, '{"C": 2}']
    )
    assert (settings, path) == ({"C": 2}, output)
    assert (labels != truth).nnz == 0 == (features != judged).nnz
    rows = [[(label, 1e-7 * (label + 1)) for label, _ in row] for row in writing.pairs_of(labels)]
    writing.write_predictions(output, rows, labels.shape[1])
    found = read_predictions(Path(output), *labels.shape)
    for written, ranked, scores in zip(rows, found.labels, found.scores, strict=True):
        is_there = ranked != NO_LABEL
        assert ranked[is_there].tolist() == [label for label, _ in reversed(written)]
        expected = np.array([score for _, score in reversed(written)], dtype=np.float32)
        assert scores[is_there].tolist() == expected.tolist()
