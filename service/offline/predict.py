"""A file of lines in, a file of answers out: what `POST /v1/batch` does, without a service."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any, cast, get_args

from pydantic import ValidationError

from longtail.models.bundle.bundle import Bundle
from longtail.models.corpus.forms import DocumentSource
from longtail.models.errors import (
    BundleNotFoundError,
    ConfigError,
    LongtailError,
    RequestError,
    ignore,
)
from longtail.models.files.failures import doing
from longtail.models.files.outputs import check_output_file
from longtail.models.files.text_files import BadLine
from longtail.models.files.typed_json import problem_in_words
from longtail.models.interface.languages import check_language, in_language
from longtail.models.interface.model import LoadedModel
from longtail.models.names import Precision
from longtail.models.options import RankingOptions
from longtail.models.platform import move, sync_file
from longtail.service.engine.queries import LabelSets, options_for
from longtail.service.offline.documents import Document, as_question, documents_of
from longtail.service.offline.tables import TABLES, check_form, form_of, write_table
from longtail.service.schemas.requests import BatchLine, BatchOptions
from longtail.service.wire.lines import (
    LineError,
    Tally,
    error_line,
    parse_line,
    problem_of_error,
    result_line,
    too_long,
)
from longtail.service.wire.problems import INVALID, KINDS

MAX_LINE_BYTES = 2**24
CHUNK_LINES = 512
"""Lines that are answered together."""


@dataclass(frozen=True, slots=True)
class Task:
    """A file of documents to answer.

    Attributes:
        documents: Where they are, and how they are read.
        target: File of the answers: JSON lines, or a table where its name ends in .csv or .tsv;
            gzip-compressed where it ends in .gz.
        version: Number of the model version; the only one that lines may name.
        defaults: Options of lines that name none.
        label_sets: The sets of labels that lines may name.
    """

    documents: DocumentSource
    target: Path
    version: int
    defaults: dict[str, Any]
    label_sets: LabelSets = field(default_factory=LabelSets)


def checked_options(given: Mapping[str, object]) -> dict[str, Any]:
    """Return the default options of lines: options that are given and not None."""
    expected = {name: value for name, value in given.items() if value is not None}
    try:
        return BatchOptions.model_validate(expected).model_dump(exclude_unset=True)
    except ValidationError as error:
        found = error.errors(include_url=False)[0]
        option = option_of(str(found["loc"][0])) if found["loc"] else "predict"  # of all of them
        raise ConfigError(f"{option}: {problem_in_words(found, repr)}") from error


def option_of(name: str) -> str:
    """Return the option of the command for a field of a line."""
    return "-k" if name == "k" else f"--{name.replace('_', '-')}"


def check_options(bundle: Bundle, options: Mapping[str, Any], sets: LabelSets) -> None:
    """Refuse options that no line of this model can be answered with, before it is loaded."""
    bundle.manifest.check_asked(options.get("scorer"), options.get("k", 1))
    check_language(bundle.catalogue, options.get("language"))
    for name in ("include_set", "exclude_set"):
        if name in options:
            sets.get(options[name])
    for name in ("include", "exclude", "under"):
        unknown = [x for x in options.get(name, ()) if bundle.catalogue.row_of_id(x) is None]
        if unknown:
            raise ConfigError(
                f"{option_of(name)}: got {unknown[0]!r}, expected the id of a label of the model; "
                "'longtail describe NAME' tells ids"
            )


def check_answerable(model: LoadedModel, task: Task) -> None:
    """Refuse options that contradict each other or the model, by answering a text of one word."""
    line = BatchLine(text="text", **task.defaults)
    try:
        check_language(model.labels, line.language)
        options = _options_of(line, task, model)
        predictor = model.answering(options.scorer, explains=options.explain)
        predictor.predict_batch(predictor.read([line.text]), options)
    except (RequestError, LineError) as error:
        raise ConfigError(f"predict: {error}") from error


def checked_precision(name: str) -> Precision:
    """Return a precision by its name."""
    known = get_args(Precision)
    if name not in known:
        raise ConfigError(f"--precision: got {name!r}; expected one of {known}")
    return cast(Precision, name)


def check_task(task: Task, registry: Path | None = None, *, overwrite: bool = False) -> None:
    """Refuse work whose input or output would stop it, before a model is loaded for it.

    Args:
        task: What is to be done.
        registry: Folder of the registry.
        overwrite: Whether answers that are there already may be replaced.
    """
    inputs = [*task.documents.paths, *task.label_sets.files()]
    check_output_file(task.target, inputs=inputs, registry=registry, overwrite=overwrite)
    check_form(task.documents, task.target, has_explanations=bool(task.defaults.get("explain")))


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """Yield the path of a file that becomes the target once it is whole; an error removes it."""
    incoming = target.with_name(f".incoming-{target.name}-{os.getpid()}")
    with doing("writing the answers", target):
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield incoming
            sync_file(incoming)
            move(incoming, target)
        except BaseException:
            incoming.unlink(missing_ok=True)
            raise


def predict_file(
    task: Task, model: LoadedModel, progress: Callable[[int], object] = ignore
) -> Tally:
    """Answer every line of a file, and return the counts of lines and answers.

    Args:
        task: What to do.
        model: That of the task's version.
        progress: Called with the number of bytes read from the source since the last call.
    """
    tally = Tally()
    answers = _answers(model, task, tally, progress)
    with replacing(task.target) as incoming:
        is_packed = task.target.suffix == ".gz"
        with gzip.open(incoming, "wb") if is_packed else incoming.open("wb") as out:
            if form_of(task.target) in TABLES:
                asks = bool(task.defaults.get("accept"))
                write_table(task.documents, task.target, answers, out, tally, has_accepted=asks)
            else:
                out.writelines(answers)
    return tally


def _answers(
    model: LoadedModel, task: Task, tally: Tally, progress: Callable[[int], object]
) -> Iterator[bytes]:
    documents = documents_of(task.documents, MAX_LINE_BYTES, progress)
    for first in count(0, CHUNK_LINES):
        if not (chunk := list(islice(documents, CHUNK_LINES))):
            return
        for answer in _answers_to(model, task, first, chunk):
            tally.note_answer(answer)
            yield answer


def _answers_to(
    model: LoadedModel, task: Task, first: int, lines: Sequence[Document]
) -> list[bytes]:
    """Return the answers to lines; lines with the same options are computed together."""
    answers: dict[int, bytes] = {}
    groups: dict[RankingOptions, list[tuple[int, BatchLine]]] = {}
    for index, content in enumerate(lines, first):
        try:
            line = _parsed(content, task)
            options = _options_of(line, task, model)
        except LineError as error:
            answers[index] = error_line(index, error.id, problem_of_error(error))
        else:
            groups.setdefault(options, []).append((index, line))
    for options, group in groups.items():
        answers |= _answer_group(model, task, options, group)
    return [answers[index] for index in sorted(answers)]


def _parsed(content: Document, task: Task) -> BatchLine:
    if content is None:
        raise too_long(MAX_LINE_BYTES)
    if isinstance(content, BadLine):
        raise LineError(INVALID, f"the document can't be read: {content.reason}")
    adapt = partial(as_question, task.documents.options) if isinstance(content, bytes) else dict
    line = parse_line(content, task.defaults, adapt)
    if line.version not in {None, "current", task.version}:
        raise LineError(
            KINDS[BundleNotFoundError],
            f"the line asks for version {line.version}, and all lines are answered by version "
            f"{task.version}; run once more for the others",
            known_by=line.id,
        )
    return line


def _options_of(line: BatchLine, task: Task, model: LoadedModel) -> RankingOptions:
    """Return what a line asks for, as it is computed together with others."""
    try:
        predictor = model.answering(line.scorer, explains=line.explain)
        return options_for(line, predictor, task.label_sets)
    except RequestError as error:
        raise LineError(KINDS[RequestError], str(error), known_by=line.id) from error


def _answer_group(
    model: LoadedModel,
    task: Task,
    options: RankingOptions,
    group: Sequence[tuple[int, BatchLine]],
) -> dict[int, bytes]:
    """Return the answers to lines that ask for the same."""
    scorer = model.default_scorer if options.scorer is None else options.scorer
    try:
        predictor = model.answering(scorer, explains=options.explain)
        batch = predictor.read([line.whole_text for _, line in group])
        predictions = predictor.predict_batch(batch, options)
    except LongtailError as error:  # all have asked for the same
        problem = problem_of_error(error)
        return {index: error_line(index, line.id, problem) for index, line in group}
    return {
        index: result_line(
            index,
            line,
            task.version,
            scorer,
            in_language(prediction, model.labels, line.language),
        )
        for (index, line), prediction in zip(group, predictions, strict=True)
    }
