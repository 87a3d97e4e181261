"""`longtail vocabulary gaps`: terms of the documents that the vocabulary lacks."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from longtail.training.commands.corpus_options import with_corpus_options
from longtail.training.commands.logs import configure_logging
from longtail.training.formats.options import RECOGNISED, CorpusOptions
from longtail.training.options import DataArgument, JsonOption


@with_corpus_options
def gaps(
    data: DataArgument,
    top: Annotated[int, typer.Option(min=1, help="Terms, at most.")] = 50,
    min_documents: Annotated[
        int, typer.Option(min=1, help="Documents that have a term among their keyphrases.")
    ] = 5,
    json_file: JsonOption = None,
    corpus: CorpusOptions = RECOGNISED,
) -> None:
    """Rank keyphrases of many documents that no label's name covers, with the nearest labels."""
    configure_logging()
    from longtail.training.data.dataset import open_dataset
    from longtail.training.data.languages import LanguageCount
    from longtail.training.evaluation.record import check_record_file, deliver
    from longtail.training.lexical.gaps import GapFinder

    dataset = open_dataset(data, corpus)
    check_record_file(json_file, inputs=dataset.paths, overwrite=False)
    splits = [dataset.split(name) for name in dataset.split_names]
    languages = LanguageCount.of(text for split in splits for text in split.texts()).languages
    finder = GapFinder(dataset.labels, languages)
    found = finder.find(lambda: ((x.id, x.text) for y in splits for x in y), min_documents)[:top]
    names = {label.id: label.name for label in dataset.labels}
    lines = ["documents  term  (examples; nearest labels)"] + [
        f"{gap.num_documents:>9,}  {gap.phrase}  ({', '.join(gap.examples)}; "
        f"{', '.join(f'{names[x]} <{x}>' for x in gap.nearest) or 'none'})"
        for gap in found
    ]
    figures = {"data": dataset.fingerprint, "gaps": [asdict(gap) for gap in found]}
    print(deliver(json_file, figures, "\n".join(lines)))
