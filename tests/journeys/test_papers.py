"""The model of `--config papers`, from training to answers over HTTP, each against brute force."""

import itertools
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from scipy.special import expit, logit

import longtail
from longtail.models.bundle.registry import Registry
from longtail.models.extras import is_installed
from longtail.models.options import RankingOptions
from longtail.models.ranking import device_rows, threshold_algorithm, top_k
from longtail.service.app import create_app
from longtail.service.http.api_keys import make_key
from longtail.service.settings import Settings
from tests.closeness import assert_all_close
from tests.conftest import read_documents, write_lines
from tests.service.conftest import listening

K = 10
SCORERS = ("sparse", "classifier", "retrieval", "linear", "hybrid", "ensemble")
CORRECTED = [*((scorer, "none") for scorer in SCORERS), ("linear", "tree")]
SIZES = {"one text": 1, "list": 7, "stream": 4}
"""Texts of a request: with all options in each form there are 500 in all."""
NUM_SWAPS = 2


@pytest.fixture(scope="module", params=["tiny", pytest.param("packaged", marks=pytest.mark.slow)])
def registry(request, tmp_path_factory, tiny_corpus, tiny_encoder):
    """Two versions of a model of the slice."""
    folder = tmp_path_factory.mktemp("papers")
    tiny = {"encoder": str(tiny_encoder), "document_max_tokens": 24, "precision": "float32"}
    longtail.train(
        tiny_corpus, config="papers", registry=folder / "registry", work=folder / "work",
        **(tiny if request.param == "tiny" else {}),
    )  # fmt: skip
    shutil.copytree(folder / "registry" / "1", folder / "registry" / "2")
    return Registry(folder / "registry")


class BruteForce:
    """The scores of all labels for some texts, in float64, by the formulas of the papers."""

    def __init__(self, registry: Registry, texts: list[str]) -> None:
        predictor = longtail.load(registry.folder).predictor
        parts, batch, self.texts = predictor.parts, predictor.read(texts), texts
        self.ids = [label.id for label in parts.catalogue]
        self._log_priors = parts.catalogue.log_priors.astype(np.float64)
        vectors, shape = batch.vectors.astype(np.float64), (len(texts), len(self.ids))

        def with_rows(labels: np.ndarray, products: np.ndarray) -> np.ndarray:
            scores = np.full(shape, -np.inf)
            scores[:, labels] = products
            return scores

        def linear(name: str) -> np.ndarray:
            model = parts.models[name].model
            return with_rows(model.labels, vectors @ model.weight.T + model.bias)

        sparse, encoder = parts.sparse, parts.dense.encoder
        tfidf = (batch.features @ sparse.weights.T).toarray() + sparse.bias
        scale, shift = encoder.log_scale.exp().item(), encoder.score_bias.item()
        tree = parts.models["linear"].tree
        log_p_n = tree.log_probs(tree.project(torch.from_numpy(batch.vectors))).numpy()
        every = np.tile(np.arange(shape[1]), (shape[0], 1))
        of = {name: linear(name) for name in ("classifier", "linear")}
        of["sparse"] = with_rows(sparse.labels, tfidf)
        of["retrieval"] = scale * vectors @ parts.dense.label_vectors.T + shift
        of["hybrid"] = logit((expit(of["retrieval"]) + expit(of["classifier"])) / 2)  # DEPL, Eq. 4
        of["ensemble"] = predictor.score(batch, every, RankingOptions(K, "ensemble"))
        self._scores = {(name, "none"): scores for name, scores in of.items()}
        # Bamler & Mandt 2020, Eq. 5
        self._scores["linear", "tree"] = of["linear"] + log_p_n

    def check(self, text: int, options: dict[str, Any], labels: list[dict[str, Any]]) -> None:
        """Fail unless these are the best labels; equally good ones but for rounding may change."""
        scores = self._scores[options["scorer"], options["correction"]][text]
        scores = scores - options["tail_dial"] * self._log_priors
        if "include" in options:
            scores[~np.isin(self.ids, options["include"])] = -np.inf
        scores[np.isin(self.ids, options.get("exclude", []))] = -np.inf
        best = np.sort(scores)[::-1][:K]
        of_id = dict(zip(self.ids, scores.tolist(), strict=True))
        found = [label["score"] for label in labels]
        assert len({label["id"] for label in labels}) == len(labels)
        assert_all_close(found, best[np.isfinite(best)], rtol=1e-4)
        assert_all_close([of_id[label["id"]] for label in labels], found, rtol=1e-4)


@pytest.fixture(scope="module")
def brute_force(registry):
    return BruteForce(registry, [x["text"] for x in read_documents("tst", 500)])


@dataclass(frozen=True)
class Asked:
    """Some texts in one form of a request, each with its options: those of a list are the same."""

    form: str
    texts: tuple[int, ...]
    options: tuple[dict[str, Any], ...]


def all_asked(brute_force: BruteForce) -> list[Asked]:
    """Every scorer and correction, with and without the dial and a filter, in every form."""
    ids = brute_force.ids
    filters = ({}, {"include": ids[::3]}, {"exclude": ids[::2]})
    options = [
        {"k": K, "scorer": scorer, "correction": correction, "tail_dial": dial} | chosen
        for (scorer, correction), dial, chosen in itertools.product(CORRECTED, (0.0, 0.7), filters)
    ]
    texts, further = itertools.cycle(range(len(brute_force.texts))), options + options
    return [
        Asked(
            form,
            tuple(itertools.islice(texts, size)),
            tuple(further[at : at + size] if form == "stream" else size * options[at : at + 1]),
        )
        for at, (form, size) in itertools.product(range(len(options)), SIZES.items())
    ]  # fmt: skip


def ask(http: httpx.Client, brute_force: BruteForce, asked: Asked) -> int:
    """Ask, check the answer, and return which version it is of."""
    texts = [brute_force.texts[text] for text in asked.texts]
    if asked.form == "stream":
        lines = [{"text": x} | options for x, options in zip(texts, asked.options, strict=True)]
        body = "".join(json.dumps(line) + "\n" for line in lines)
        headers = {"Content-Type": "application/x-ndjson"}
        answer = http.post("/v1/batch", content=body, headers=headers)
        assert answer.status_code == 200, answer.text
        *results, end = map(json.loads, answer.text.splitlines())
        assert end["summary"]["complete"], answer.text
        version = results[0]["version"]
    else:
        body = {"text": texts[0]} if asked.form == "one text" else {"texts": texts}
        answer = http.post("/v1/predict", json=body | asked.options[0])
        assert answer.status_code == 200, answer.text
        version, results = answer.json()["model"]["version"], answer.json()["results"]
    for text, options, result in zip(asked.texts, asked.options, results, strict=True):
        assert result["exact"]
        brute_force.check(text, options, result["labels"])
    return version


@pytest.fixture(params=["faiss", "torch", "whole numbers"])
def index(request, monkeypatch):
    """What searches label vectors: FAISS, a float32 product, or our product of 16-bit integers."""
    if request.param == "faiss" and not is_installed("faiss"):
        pytest.skip("FAISS is not installed")
    monkeypatch.setattr(device_rows, "pays", lambda vectors: request.param == "whole numbers")
    # So that few labels are searched as many are: in rounds.
    monkeypatch.setattr(top_k, "_ALWAYS_UP_TO", 0)
    monkeypatch.setattr(threshold_algorithm, "_FIRST_DEPTH", 8)
    return "faiss" if request.param == "faiss" else "torch"


def test_it_is_served_as_brute_force_has_it_while_versions_are_swapped(
    registry, brute_force, index
):
    key, entry = make_key("papers")
    settings = Settings(
        registry=registry.folder, index=index, precision="float32", num_threads=1,
        admin_keys=entry, watch_interval_s=0, request_timeout_s=300, log_level="warning",
    )  # fmt: skip
    requests = all_asked(brute_force)
    assert sum(len(asked.texts) for asked in requests) > 500
    with (
        listening(create_app(settings), settings) as url,
        httpx.Client(base_url=url, timeout=300) as http,
        ThreadPoolExecutor(9) as pool,
    ):
        swaps = pool.submit(swap, http, {"Authorization": f"Bearer {key}"})
        versions = set()
        while not swaps.done() or not versions:
            versions |= set(pool.map(lambda asked: ask(http, brute_force, asked), requests))
        assert swaps.result() == NUM_SWAPS
    assert versions == {1, 2}


def swap(http: httpx.Client, headers: dict[str, str]) -> int:
    """Activate one version after the other; returns how often."""
    for number in range(NUM_SWAPS):
        answer = http.post(f"/v1/admin/models/{2 - number % 2}/activate", headers=headers)
        assert answer.status_code == 200, answer.text
    return NUM_SWAPS


def test_files_and_python_give_the_same(registry, brute_force, index, tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    write_lines(tmp_path / "texts.jsonl", ({"text": text} for text in brute_force.texts[:20]))
    model = longtail.load(registry.folder, index=index)
    for scorer, correction in CORRECTED[-2:]:  # the blend, and p_n of the label tree
        chosen = {"k": K, "scorer": scorer, "correction": correction, "tail_dial": 0.7}
        words = [f"--{name.replace('_', '-')}={value}" for name, value in chosen.items()]
        words += [
            f"--index={index}",
            "--input=texts.jsonl",
            f"--output={scorer}-{correction}.jsonl",
        ]
        assert run("predict", f"--registry={registry.folder}", *words).status == 0
        lines = (tmp_path / f"{scorer}-{correction}.jsonl").read_text().splitlines()
        answers = model.predict(brute_force.texts[:20], **chosen)
        for text, (line, answer) in enumerate(zip(lines, answers, strict=True)):
            brute_force.check(text, chosen, json.loads(line)["labels"])
            brute_force.check(text, chosen, [{"id": x.id, "score": x.score} for x in answer])
