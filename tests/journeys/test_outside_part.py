"""A fitted part of another package, in one file: fitted, stored, checked, shown and measured."""

import importlib
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from longtail.models import options
from longtail.models.bundle.registry import Registry
from longtail.models.edit.rewriting import publish_texts, rewrite
from longtail.models.errors import BundleCorruptError, ConfigError, RequestError
from longtail.models.fitted import registry as parts
from longtail.models.kinds.storage import read_parts
from longtail.models.predict.predictor import Predictor
from longtail.models.sharing.card import model_card
from longtail.training.assessment.assess import assess_bundle
from longtail.training.data.dataset import open_dataset
from longtail.training.fitted import registry as fittings

NAME = "usual_length"
FOLDER = Path(__file__).parent / "outside_part"


@pytest.fixture(scope="module")
def package():
    """The file of the package, imported as its users import it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        options.options_class.cache_clear()  # other tests have read requests
        found = importlib.import_module(NAME)
        yield found
        del sys.modules[NAME], parts.PARTS[NAME], fittings.FITTINGS[NAME]
        del options._OF_PARTS[found.LENGTH.name]
        options.options_class.cache_clear()


@pytest.fixture(scope="module")
def own(package, tmp_path_factory, train_in, sparse_config, tiny_corpus):
    return train_in(tmp_path_factory.mktemp("own"), sparse_config, tiny_corpus)


@pytest.fixture(scope="module")
def most(tiny_corpus):
    return max(len(text.split()) for text in open_dataset(tiny_corpus).split("dev").texts())


def test_it_is_fitted_stored_and_read(package, own, most):
    assert json.loads(own.bundle.text(f"{NAME}.json")) == {"most": most}
    assert read_parts(own.bundle).fitted[NAME] == package.UsualLength(most)


def test_it_is_shown_in_answers_and_in_the_card(own, most):
    known = own.bundle.catalogue[0].name
    predictor, texts = Predictor.of_bundle(own.bundle), [known, f"{known} " * (most + 1)]
    assert not any(
        each.code == "long-text" for x in predictor.predict(texts) for each in x.warnings
    )
    short, long = predictor.predict(texts, length=True)
    assert f"more than {most} words" not in [each.detail for each in short.warnings]
    assert f"more than {most} words" in [each.detail for each in long.warnings]
    card = model_card(own.bundle, (), parts.card_lines(own.bundle))
    assert f"- It was made for texts of up to {most} words." in card


def test_a_model_without_it_refuses_its_option(own, package):
    lacking = replace(read_parts(own.bundle), fitted={})
    with pytest.raises(RequestError, match=f"length is True, and the model has no {NAME}"):
        Predictor(lacking, device="cpu").predict(["a text"], length=True)
    with pytest.raises(RequestError, match="length"):
        Predictor(lacking, device="cpu").predict(["a text"], length="long")


def test_every_door_has_its_option():
    doors = """
import sys
sys.path.insert(0, sys.argv[1])
import usual_length, typer
from longtail.service.commands.predict import predict_command
from longtail.service.schemas.requests import BatchLine, PredictRequest
schemas = [each.model_json_schema()["properties"]["length"] for each in (PredictRequest, BatchLine)]
command = typer.main.get_command(predict_command())
helped = [each.help for each in command.params if "--length" in each.opts]
print(*{each["description"] for each in schemas}, *helped, sep="|")
"""
    done = subprocess.run(
        [sys.executable, "-c", doors, str(FOLDER)], capture_output=True, text=True, check=True
    )
    text = "Warn of texts that are longer than all documents."
    assert done.stdout.strip() == f"{text}|{text}"


def test_it_is_measured(own, tiny_corpus, tmp_path):
    found = assess_bundle(own.bundle, open_dataset(tiny_corpus), "test")
    assert found.to_json()[NAME] == {"n": 1}
    found.write(tmp_path)
    written = (tmp_path / "evaluation.md").read_text("utf-8")
    assert f"{len(found.answers.labels)} |" in written.split("## Length")[1]


def test_one_that_contradicts_its_model_is_refused(own, tmp_path):
    store = Registry(tmp_path / "registry")
    wrong = {f"{NAME}.json": json.dumps({"most": 0})}
    with pytest.raises(BundleCorruptError, match=r"usual_length.json can't be used: most 0"):
        publish_texts(store, own.bundle, wrong, activate=True, action="test")
    assert store.versions() == []


def test_versions_with_other_labels_or_scores_lose_it(own, tmp_path, caplog):
    store, bundle = Registry(tmp_path / "registry"), own.bundle
    store.publish(lambda to: rewrite(to, bundle, bundle.manifest, bundle.catalogue, {}, {}))
    assert f"bundle {bundle.folder.name}: its usual length is lost" in caplog.messages
    assert NAME not in read_parts(store.open()).fitted


def test_no_two_parts_have_one_name(package):
    with pytest.raises(ConfigError, match="that nothing fits yet"):
        fittings.register(package.UsualLengthFitting())
    with pytest.raises(ConfigError, match="that no other part has"):
        parts.register(package.UsualLengthPart())
