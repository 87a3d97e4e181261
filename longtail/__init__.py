"""The door: what `import longtail` gives to Python, and the command `longtail`.

It only composes the two sides, `training` and `service`. What it gives is imported when it is first
asked for, so that the import itself takes next to nothing.

    import longtail

    longtail.train("DATA")                          # publishes a version in the folder `registry`
    model = longtail.load()                         # the current one
    model.predict("Duties on imports of olive oil", k=3)
    model.evaluate("DATA").metrics
"""

from __future__ import annotations

import logging
import os
import sys
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if not (Path(__file__).parent / "models").is_dir():  # a checkout without symbolic links
    __path__.append(str(Path(__file__).parents[1]))

from longtail.models.errors import LongtailError
from longtail.models.files.failures import (
    DEBUG_VARIABLE,
    INTERRUPTED,
    READER_GONE,
    CommandStoppedError,
    doing,
    explain,
)
from longtail.models.platform import prepare_output

if TYPE_CHECKING:  # they bring PyTorch or Typer
    import typer

    from longtail.model import Model
    from longtail.models.bundle.registry import Registry
    from longtail.models.interface.arrow import ArrowPredictor, arrow_predictor
    from longtail.models.predict.predictor import Predictor
    from longtail.models.promotion.decision import TryOnService
    from longtail.training.assessment.assess import Assessment
    from longtail.training.data.dataset import Dataset
    from longtail.training.estimators.classifier import LongtailClassifier
    from longtail.training.estimators.corpus import LabelTexts
    from longtail.training.estimators.scorers import (
        metrics_at_k,
        ndcg_at_k,
        precision_at_k,
        psp_at_k,
    )
    from longtail.training.formats.options import CorpusOptions

__all__ = [
    "ArrowPredictor", "CorpusOptions", "LongtailClassifier", "LongtailError", "Model", "Predictor",
    "Registry", "arrow_predictor", "evaluate", "learn", "load", "metrics_at_k", "ndcg_at_k",
    "precision_at_k", "psp_at_k", "train",
]  # fmt: skip

_LAZY = {
    "ArrowPredictor": "longtail.models.interface.arrow",
    "CorpusOptions": "longtail.training.formats.options",
    "LongtailClassifier": "longtail.training.estimators.classifier",
    "Model": "longtail.model",
    "Predictor": "longtail.models.predict.predictor",
    "Registry": "longtail.models.bundle.registry",
    "arrow_predictor": "longtail.models.interface.arrow",
    "metrics_at_k": "longtail.training.estimators.scorers",
    "ndcg_at_k": "longtail.training.estimators.scorers",
    "precision_at_k": "longtail.training.estimators.scorers",
    "psp_at_k": "longtail.training.estimators.scorers",
}
TRAINING = Path(__path__[-1]) / "training"
DEMO_DATA = TRAINING / "demo_data"
_FIRST_COMMANDS = (
    "demo", "inspect", "train", "evaluate", "report", "serve", "predict", "learn", "promote",
    "compare",
)  # fmt: skip


def load(
    source: str | Path = "registry",
    version: int | str = "current",
    *,
    device: str | None = None,
    num_threads: int | None = None,
) -> Model:
    """Return a trained model.

    Args:
        source: The folder of a registry, or of a bundle; or a URI of either ("s3://...",
            "hf://owner/name"), which is copied to the cache first (see `find_model`).
        version: A version's number, or "current"; of a registry.
        device: "cpu" or "cuda"; None: a GPU if there is one.
        num_threads: Of PyTorch, for the whole process; None: as they are.

    Raises:
        BundleNotFoundError: There is no such version, or no bundle.
        BundleCorruptError: The bundle is not as it was written.
        BundleError: The URI can't be reached, or the copy can't be stored.
        ConfigError: There is no such device, the number of threads is none from 1, or a version of
            a bundle is asked for.
    """
    from longtail.model import Model
    from longtail.models.predict.predictor import Predictor
    from longtail.models.sharing.addresses import find_model

    bundle = find_model(source, version).open()
    return Model(bundle, Predictor.of_bundle(bundle, device=device, num_threads=num_threads))


def train(
    data: Any,
    *,
    config: str | Path | None = None,
    registry: str | Path = "registry",
    work: str | Path = "runs/train",
    corpus: CorpusOptions | None = None,
    label_texts: LabelTexts | None = None,
    verbose: bool = False,
    **overrides: Any,
) -> int:
    """Train on a corpus, publish the model, and return its version; a run that stopped resumes.

    Args:
        data: Folder of the corpus, or one file. Or documents, which are written to the run's folder
            as one file, and divided into splits like any: a data frame, whose columns and cells are
            read as those of a CSV file, or a pair of texts and lists of labels.
        config: YAML file of the run.
        registry: Folder of the registry.
        work: Folder of the run's work.
        corpus: What the corpus doesn't say itself, such as its columns.
        label_texts: With documents: by label, its name, or the fields of a label file; labels that
            no document carries are labels of the model, too.
        verbose: Whether progress bars are shown; messages go to `logging`.
        **overrides: Top-level keys of the configuration, such as `scorers=["sparse"]`.

    Raises:
        LongtailError: As `longtail train` does; says what, where, and what to do.
    """
    from longtail.models.bundle.registry import Registry
    from longtail.training.configuration.run import read_config
    from longtail.training.data.dataset import open_dataset
    from longtail.training.estimators.corpus import documents_of, kept_corpus, write_corpus
    from longtail.training.formats.options import CorpusOptions
    from longtail.training.pipeline.train import Run
    from longtail.training.pipeline.train import train as run_all
    from longtail.training.runtime.progress import progress_shown

    settings = read_config(None if config is None else Path(config), overrides)
    if isinstance(data, str | Path):
        _check_no_label_texts(data, label_texts)
        dataset = open_dataset(Path(data), corpus)
    else:
        documents = documents_of(data, corpus or CorpusOptions())
        write = partial(write_corpus, documents=documents, label_texts=label_texts)
        dataset = kept_corpus(Path(work), write, documents.name)
        dataset = dataset.written_from(documents.text_columns, documents.options)
    with progress_shown(verbose):
        return run_all(Run(settings, dataset, Path(work)), Registry(Path(registry)))


def evaluate(
    data: Any,
    *,
    registry: str | Path = "registry",
    version: int | str = "current",
    split: str = "test",
    baselines: bool = False,
    corpus: CorpusOptions | None = None,
    verbose: bool = False,
) -> Assessment:
    """Return what every scorer of a model achieves on a split of a corpus.

    Documents that the model was trained on are left out.

    Args:
        data: As for `train`: what was trained on gives the same splits again. To measure on all
            documents of a data frame that are new to the model: `load().evaluate(frame)`.
        registry: Folder of the registry.
        version: A version's number, or "current".
        split: Its name: train, dev or test.
        baselines: Whether nearest neighbours and label names are measured, too.
        corpus: What the corpus's files don't say themselves, as it was trained.
        verbose: Whether progress bars are shown.

    Raises:
        LongtailError: As `longtail evaluate` does; says what, where, and what to do.
    """
    from longtail.models.bundle.registry import Registry
    from longtail.training.assessment.assess import assess_bundle
    from longtail.training.assessment.untrained import open_as_trained
    from longtail.training.estimators.corpus import DOCUMENTS_NAME
    from longtail.training.estimators.model import documents_as_trained, written
    from longtail.training.formats.options import RECOGNISED
    from longtail.training.runtime.progress import progress_shown

    bundle = Registry(Path(registry)).open(version)
    opened: AbstractContextManager[Dataset]
    if isinstance(data, str | Path):
        options = corpus or RECOGNISED
        opened = nullcontext(open_as_trained(Path(data), options, [bundle], bundle.catalogue))
    else:
        documents = documents_as_trained(data, corpus or RECOGNISED, bundle)
        opened = written(documents, bundle, DOCUMENTS_NAME)
    with opened as dataset, progress_shown(verbose):
        return assess_bundle(bundle, dataset, split, baselines=baselines)


def learn(
    feedback: str | Path,
    data: str | Path,
    *,
    registry: str | Path = "registry",
    version: int | str = "current",
    work: str | Path = "runs/learn",
    corpus: CorpusOptions | None = None,
    verbose: bool = False,
) -> int:
    """Learn from feedback, publish a version made from one that there is, and return its number.

    The version becomes current only if it answers more judged texts as people said than before, or
    all of them; else a warning is logged.

    Args:
        feedback: Folder that a service keeps feedback in, or an export.
        data: The corpus that the model was trained on.
        registry: Folder of the registry.
        version: A version's number, or "current".
        work: Folder of the work; a run that stopped resumes there.
        corpus: What the corpus's files don't say themselves, as it was trained.
        verbose: Whether progress bars are shown.

    Raises:
        LongtailError: As `longtail learn` does; says what, where, and what to do.
    """
    from longtail.models.bundle.registry import Registry
    from longtail.training.assessment.untrained import open_as_trained
    from longtail.training.commands.learn import not_current, verdicts_in_words
    from longtail.training.data.feedback import open_feedback
    from longtail.training.formats.options import RECOGNISED
    from longtail.training.runtime.progress import progress_shown
    from longtail.training.updating.learn import LearningRun
    from longtail.training.updating.learn import learn as learn_from

    said, store = open_feedback(feedback, _export_feedback), Registry(registry)
    dataset = open_as_trained(Path(data), corpus or RECOGNISED, [store.open(version)])
    with progress_shown(verbose):
        done = learn_from(LearningRun(said, dataset, store, version, Path(work)))
    if done.learned is not None and not done.learned.is_better:
        told = f"{verdicts_in_words(done.learned)} {not_current(done.version)}"
        logging.getLogger(__name__).warning("%s", told)
    return done.version


def _export_feedback(place: str | Path, target: Path) -> None:
    """Write the feedback that a service keeps in a folder to a file."""
    from longtail.service.feedback.store import FeedbackStore
    from longtail.service.offline.feedback import export_feedback

    with FeedbackStore(place, must_exist=True) as store:
        export_feedback(store, target)


def _held_out(data: Path, bundle: Any) -> Any:
    from longtail.training.assessment.untrained import held_out

    return held_out(data, bundle)


def _check_no_label_texts(data: str | Path, label_texts: LabelTexts | None) -> None:
    """Refuse texts of labels that are given with a folder."""
    from longtail.models.errors import DataError

    if label_texts is not None:
        raise DataError(
            f"label_texts is given with the folder {str(data)!r}; write them to a label file "
            "in it, such as labels.jsonl"
        )


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    """Import what is asked for: a class, or `app`, the command as Typer knows it.

    Raises:
        AttributeError: There is nothing of this name.
    """
    if name == "app":
        return _app()
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'longtail' has no attribute {name!r}; it has {__all__}")


@cache
def _app() -> typer.Typer:
    """Return the command with all that is installed: the image of the service cannot train."""
    import typer
    from typer.core import TyperGroup

    import longtail.service.cli

    class Commands(TyperGroup):
        """The commands; what stops one is told by `main`, whichever release of Typer runs it."""

        def invoke(self, ctx: Any) -> Any:
            try:
                return super().invoke(ctx)
            except KeyboardInterrupt as error:
                raise CommandStoppedError(INTERRUPTED) from error
            except BrokenPipeError as error:
                raise CommandStoppedError(READER_GONE) from error
            except Exception as error:
                if find_spec("longtail.training"):
                    from longtail.training.commands.corpus_options import advise

                    advise(error)
                raise

    app = typer.Typer(
        cls=Commands,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"obj": _held_out if find_spec("longtail.training") else None},
        help="Labels for texts out of very large label sets, right for rare labels too.",
        epilog="Exit status: 0 done; 1 failed, the last line on stderr says why; 2 the command "
        "line can't be read; 130 interrupted; 141 the reader of the output went away.",
    )
    debugging = typer.Option(
        False, "--debug", help=f"Show the traceback of an error ({DEBUG_VARIABLE}=1)."
    )
    more_logs = typer.Option(False, "--verbose", "-v", help="Log every stage of a command.")
    release = typer.Option(
        False,
        "--version",
        help="Show the version of Longtail and exit.",
        callback=_print_version,
        is_eager=True,
    )

    @app.callback()
    def prepare(
        debug: bool = debugging,  # noqa: ARG001  # read by `main`, before the command
        verbose: bool = more_logs,
        version: bool = release,  # noqa: ARG001  # done by its callback
    ) -> None:
        """Labels for texts out of very large label sets, right for rare labels too."""
        logging.getLogger(__name__).setLevel(logging.INFO if verbose else logging.NOTSET)
        _refuse_unknown_variables()

    if find_spec("longtail.training"):
        import longtail.training.cli
        import longtail.training.commands.learn
        import longtail.training.commands.promote

        longtail.training.cli.add_commands(app)
        app.command("learn")(longtail.training.commands.learn.make_learn_command(_export_feedback))
        app.command("promote")(
            longtail.training.commands.promote.promote_command(
                _trial, _check_access, _export_feedback
            )
        )
        app.command("demo")(_demo_command())
    longtail.service.cli.add_commands(app)
    _arrange(app)
    return app


def _arrange(app: typer.Typer) -> None:
    """Put the commands in the order in which people need them, and the others below."""
    order = {name: i for i, name in enumerate(_FIRST_COMMANDS)}
    app.registered_commands.sort(key=lambda each: order.get(each.name or "", len(order)))
    for each in app.registered_commands:
        each.rich_help_panel = "Commands" if each.name in order else "More commands"
    for group in app.registered_groups:
        group.rich_help_panel = "More commands"


def _trial() -> TryOnService:
    """Return what tries a candidate on a service: the training side decides, this one asks."""
    from longtail.service.canary.watch import try_on_service

    return try_on_service


def _check_access(url: str, key: str | None) -> None:
    """Refuse an admin key that a service does not take."""
    from longtail.service.canary.watch import check_access

    check_access(url, key)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import PackageNotFoundError, version

        import typer

        try:
            print(f"longtail {version('longtail')}")
        except PackageNotFoundError:
            print("longtail, run from a folder and not installed: its version is not known")
        raise typer.Exit


def _demo_command() -> Any:
    import typer

    folder = typer.Option(Path("registry"), help="Folder of the registry.")
    run = typer.Option(Path("runs/demo"), help="Folder of the run's work.")
    number = typer.Option(8000, help="TCP port of the service.")
    serving = typer.Option(True, help="Go on serving at the end, until Ctrl-C.")

    def run_demo(
        registry: Path = folder,
        work: Path = run,
        port: int = number,
        serve: bool = serving,
    ) -> None:
        """Train, serve and measure a small model, and a better one while the first one serves."""
        from longtail.demo import demo

        demo(DEMO_DATA, registry, work, port, keeps_serving=serve)

    return run_demo


def _refuse_unknown_variables() -> None:
    if not any(name.upper().startswith("LONGTAIL_") for name in os.environ):
        return  # the settings take a while to import
    from longtail.service.settings import refuse_unknown_variables

    refuse_unknown_variables(os.environ)


def main() -> None:
    """Run the command; a failure is told in one sentence, with a traceback only where asked for."""
    prepare_output()
    try:
        _run()
    except Exception as error:  # noqa: BLE001  # the last resort, which ends the process
        sys.exit(_tell(error))
    except KeyboardInterrupt as error:
        sys.exit(_tell(error))


def _run() -> None:
    try:
        _app()(prog_name="longtail")
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):  # what prints the help ends with 1
            raise CommandStoppedError(READER_GONE) from error
        raise
    finally:
        with doing("writing to", Path("standard output")):
            sys.stdout.flush()


def _tell(error: BaseException) -> int:
    """Print why a command failed and return its exit status."""
    if isinstance(error, OSError | CommandStoppedError):
        _let_go_of_stdout()
    command = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    failure = explain(error, command)
    with suppress(OSError):  # nobody may read stderr either
        if _is_debugging():
            import traceback

            traceback.print_exception(error)
        if failure.message:
            print(failure.message, file=sys.stderr, flush=True)
    return failure.status


def _is_debugging() -> bool:
    return "--debug" in sys.argv[1:2] or os.environ.get(DEBUG_VARIABLE, "") not in {"", "0"}


def _let_go_of_stdout() -> None:
    """Point stdout to nowhere if it can't be written: Python would fail once more at its end."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
