"""The functions of `import longtail`: load, train, evaluate and learn.

Each function imports its modules when it is called, as the image of the service cannot train.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # they bring PyTorch, or training
    from longtail.model import Model
    from longtail.models.corpus.columns import CorpusOptions
    from longtail.models.names import IndexName
    from longtail.training.assessment.assess import Assessment
    from longtail.training.data.dataset import Dataset
    from longtail.training.estimators.corpus import LabelTexts


def load(
    source: str | Path = "registry",
    version: int | str = "current",
    *,
    device: str | None = None,
    num_threads: int | None = None,
    index: IndexName = "torch",
) -> Model:
    """Return a trained model.

    Args:
        source: The folder of a registry, or of a bundle; or a URI of either ("s3://...",
            "hf://owner/name"), which is copied to the cache first (see `find_model`).
        version: For a registry: a version's number, or "current".
        device: "cpu" or "cuda"; None: a GPU if there is one.
        num_threads: Threads of PyTorch in the whole process; None changes nothing.
        index: What searches label vectors: "torch", "faiss" (an extra; slower on a CPU), or "auto",
            which times both. The answers are the same.

    Raises:
        BundleNotFoundError: There is no such version, or no bundle.
        BundleCorruptError: The bundle is damaged.
        BundleError: The URI can't be reached, or the copy can't be stored.
        ConfigError: There is no such device or index, the number of threads is below 1, or
            `version` is given for a bundle.
    """
    from longtail.models.files.rows import garbage_collection_off

    with garbage_collection_off():  # the modules, too, make many objects
        from longtail.model import Model
        from longtail.models.sharing.transfer import find_model

        bundle = find_model(source, version).open()
        return Model(bundle, device=device, num_threads=num_threads, index=index)


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
    """Train on a corpus, publish the model, and return its version; an interrupted run resumes.

    Args:
        data: Folder of the corpus, or one file. Or documents: a data frame, whose columns and cells
            are read as those of a CSV file, or a pair of texts and lists of labels. Documents are
            written to the run's folder as one file, and divided into splits like any file.
        config: YAML file of the run.
        registry: Folder of the registry.
        work: Folder of the run's work.
        corpus: Options for reading the corpus, such as its columns.
        label_texts: With documents: by label, its name, or the fields of a label file. Labels that
            no document carries become labels of the model, too.
        verbose: Whether progress bars are shown; messages go to `logging`.
        **overrides: Top-level keys of the configuration, such as `scorers=["sparse"]`.

    Raises:
        DataError: `label_texts` is given with a folder.
        LongtailError: As `longtail train` does; says what, where, and what to do.
    """
    from longtail.models.bundle.registry import Registry
    from longtail.models.corpus.columns import CorpusOptions
    from longtail.models.errors import DataError
    from longtail.training.configuration.run import read_config
    from longtail.training.data.dataset import open_dataset
    from longtail.training.estimators.corpus import documents_of, kept_corpus, write_corpus
    from longtail.training.pipeline.train import Run
    from longtail.training.pipeline.train import train as run_all
    from longtail.training.runtime.run_log import progress_shown

    settings = read_config(None if config is None else Path(config), overrides)
    if isinstance(data, str | Path):
        if label_texts is not None:
            raise DataError(
                f"label_texts is given with the folder {str(data)!r}; write them to a label file "
                "in it, such as labels.jsonl"
            )
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
    """Measure every scorer of a model on a split of a corpus.

    Documents that the model was trained on are left out.

    Args:
        data: As for `train`; the same data give the same splits. `load().evaluate(frame)` measures
            on all documents of a data frame that are new to the model.
        registry: Folder of the registry.
        version: A version's number, or "current".
        split: Name of the split: train, dev or test.
        baselines: Whether nearest neighbours and label names are measured, too.
        corpus: What the corpus's files don't say themselves, as it was trained.
        verbose: Whether progress bars are shown.

    Raises:
        LongtailError: As `longtail evaluate` does; says what, where, and what to do.
    """
    from longtail.models.bundle.registry import Registry
    from longtail.models.corpus.columns import RECOGNISED
    from longtail.training.assessment.assess import assess_bundle
    from longtail.training.assessment.untrained import open_as_trained
    from longtail.training.estimators.corpus import DOCUMENTS_NAME
    from longtail.training.estimators.model import documents_as_trained, written
    from longtail.training.runtime.run_log import progress_shown

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
    """Learn from feedback: make a version from an existing one, publish it, and return its number.

    Args:
        feedback: Folder that a service keeps feedback in, or an export.
        data: The corpus that the model was trained on.
        registry: Folder of the registry.
        version: A version's number, or "current".
        work: Folder of the work; an interrupted run resumes there.
        corpus: What the corpus's files don't say themselves, as it was trained.
        verbose: Whether progress bars are shown.

    Raises:
        LongtailError: As `longtail learn` does; says what, where, and what to do.
    """
    from longtail.commands.feedback_files import open_feedback
    from longtail.ext.learn.learn import LearningRun
    from longtail.ext.learn.learn import learn as learn_from
    from longtail.models.bundle.registry import Registry
    from longtail.models.corpus.columns import RECOGNISED
    from longtail.training.assessment.untrained import open_as_trained
    from longtail.training.runtime.run_log import progress_shown

    said, store = open_feedback(feedback), Registry(registry)
    dataset = open_as_trained(Path(data), corpus or RECOGNISED, [store.open(version)])
    with progress_shown(verbose):
        return learn_from(LearningRun(said, dataset, store, version, Path(work))).version
