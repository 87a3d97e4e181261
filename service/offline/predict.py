"""A file of lines in, a file of answers out: what `POST /v1/batch` does, without a service."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any, cast, get_args

from pydantic import ValidationError

from longtail.models.bundle.bundle import Bundle
from longtail.models.errors import (
    BundleNotFoundError,
    ConfigError,
    LongtailError,
    RequestError,
    ignore,
)
from longtail.models.files.outputs import check_output_file
from longtail.models.files.text_files import BadLine
from longtail.models.files.typed_json import problem_in_words
from longtail.models.interface.languages import check_language, in_language
from longtail.models.names import OnnxPrecision, Precision
from longtail.models.options import RankingKeywords, RankingOptions
from longtail.models.predict.predictor import Predictor
from longtail.service.engine.queries import LabelSets, options_for
from longtail.service.offline.documents import Document, as_question, documents_of
from longtail.service.offline.tables import (
    Task,
    check_form,
    check_left,
    finish,
    option_of,
    resume,
    working,
)
from longtail.service.schemas.predict import BatchLine, BatchOptions
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
"""Lines that are answered, and written, together."""


def checked_options(given: Mapping[str, object]) -> dict[str, Any]:
    """Return the default options of lines: options that are given and not None."""
    expected = {name: value for name, value in given.items() if value is not None}
    try:
        return BatchOptions.model_validate(expected).model_dump(exclude_unset=True)
    except ValidationError as error:
        found = error.errors(include_url=False)[0]
        option = option_of(str(found["loc"][0])) if found["loc"] else "predict"  # of all of them
        raise ConfigError(f"{option}: {problem_in_words(found, repr)}") from error


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


def keywords_of(options: Mapping[str, Any], sets: LabelSets) -> dict[str, Any]:
    """Return what `checked_options` returned as keyword arguments of `RankingOptions`."""
    asked = BatchLine(text="text", **options)
    label_filter = sets.filter_of(asked)
    names = RankingKeywords.__annotations__.keys() & options.keys()
    found = {name: getattr(asked, name) for name in names}
    return found if label_filter.is_empty else {**found, "label_filter": label_filter}


def check_answerable(predictor: Predictor, task: Task) -> None:
    """Refuse options that contradict each other or the model, by answering a text of one word."""
    line = BatchLine(text="text", **task.defaults)
    try:
        check_language(predictor.catalogue, line.language)
        options = _options_of(line, task, predictor)
        predictor.predict_batch(predictor.read([line.text]), options)
    except (RequestError, LineError) as error:
        raise ConfigError(f"predict: {error}") from error


def checked_precision(name: str) -> Precision | OnnxPrecision:
    """Return a precision by its name."""
    known = get_args(Precision) + get_args(OnnxPrecision)
    if name not in known:
        raise ConfigError(f"--precision: got {name!r}; expected one of {known}")
    return cast(Precision | OnnxPrecision, name)


def check_task(task: Task, registry: Path | None = None, *, overwrite: bool = False) -> None:
    """Refuse work whose input or output would stop it, before a model is loaded for it.

    Args:
        task: What is to be done.
        registry: Folder of the registry.
        overwrite: Whether answers that are there already may be replaced.
    """
    inputs = [*task.documents.paths, *task.label_sets.files()]
    check_output_file(task.target, inputs=inputs, registry=registry, overwrite=overwrite)
    for path in (task.part, task.state):
        check_output_file(path, inputs=inputs, registry=registry, overwrite=True)
    check_form(task.documents, task.target, has_explanations=bool(task.defaults.get("explain")))
    check_left(task)


def predict_file(
    task: Task, predictor: Predictor, progress: Callable[[int], object] = ignore
) -> Tally:
    """Answer every line of a file; what an earlier run has answered is kept.

    Args:
        task: What to do.
        predictor: The model of the task's version.
        progress: Called with the bytes of the source, as it lies on disk, that were read since.

    Returns:
        What became of all lines, those of earlier runs among them.
    """
    tally = Tally()
    with working(task):
        num_kept = resume(task, tally)
        with task.part.open("ab") as out:
            for first, lines in _chunks_left(task, num_kept, progress):
                for answer in _answers_to(predictor, task, first, lines):
                    tally.note_answer(answer)
                    out.write(answer)
                out.flush()
                os.fsync(out.fileno())
        finish(task, tally)
    return tally


def _chunks_left(
    task: Task, num_kept: int, progress: Callable[[int], object]
) -> Iterator[tuple[int, Sequence[Document]]]:
    """Yield the documents that have no answers yet, in chunks, with the number of the first one."""
    wanted = documents_of(task.documents, MAX_LINE_BYTES, progress)
    for first in count(0, CHUNK_LINES):
        chunk = list(islice(wanted, CHUNK_LINES))
        if not chunk:
            return
        if first + len(chunk) > num_kept:
            start = max(first, num_kept)
            yield start, chunk[start - first :]


def _answers_to(
    predictor: Predictor, task: Task, first: int, lines: Sequence[Document]
) -> list[bytes]:
    """Return the answers to lines; lines with the same options are computed together."""
    answers: dict[int, bytes] = {}
    groups: dict[RankingOptions, list[tuple[int, BatchLine]]] = {}
    for index, content in enumerate(lines, first):
        try:
            line = _parsed(content, task)
            options = _options_of(line, task, predictor)
        except LineError as error:
            answers[index] = error_line(index, error.id, problem_of_error(error))
        else:
            groups.setdefault(options, []).append((index, line))
    for options, group in groups.items():
        answers |= _answer_group(predictor, task, options, group)
    return [answers[index] for index in sorted(answers)]


def _parsed(content: Document, task: Task) -> BatchLine:
    if content is None:
        raise too_long(MAX_LINE_BYTES)
    if isinstance(content, BadLine):
        raise LineError(INVALID, f"the document can't be read: {content.reason}")
    adapt = partial(as_question, task.options) if isinstance(content, bytes) else dict
    line = parse_line(content, task.defaults, adapt)
    if line.version not in {None, "current", task.version}:
        raise LineError(
            KINDS[BundleNotFoundError],
            f"the line asks for version {line.version}, and all lines are answered by version "
            f"{task.version}; run once more for the others",
            known_by=line.id,
        )
    return line


def _options_of(line: BatchLine, task: Task, predictor: Predictor) -> RankingOptions:
    """Return what a line asks for, as it is computed together with others."""
    try:
        return options_for(line, predictor, task.label_sets)
    except RequestError as error:
        raise LineError(KINDS[RequestError], str(error), known_by=line.id) from error


def _answer_group(
    predictor: Predictor,
    task: Task,
    options: RankingOptions,
    group: Sequence[tuple[int, BatchLine]],
) -> dict[int, bytes]:
    """Return the answers to lines that ask for the same."""
    scorer = predictor.scorers.default if options.scorer is None else options.scorer
    try:
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
            in_language(prediction, predictor.catalogue, line.language),
        )
        for (index, line), prediction in zip(group, predictions, strict=True)
    }
