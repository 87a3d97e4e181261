"""The text of a label as the label encoder reads it (DEPL section 3.2)."""

from __future__ import annotations

from collections.abc import Sequence

from longtail.models.labels.catalogue import Label

PART_END = ". "
"""Parts a name, a description and keywords, so that the encoder doesn't read them as one phrase."""


def pseudo_description(label: Label, keywords: Sequence[str] = ()) -> str:
    """Return pseudo_label(l) = label_name(l) + keywords(l) (DEPL section 3.2).

    A publisher's description, other names and the names of broader labels, where there are some,
    stand between the two.
    """
    parts = (
        label.name,
        label.description,
        ", ".join(label.alternative_names),
        ", ".join(label.parents),
        " ".join(keywords),
    )
    return PART_END.join(part.strip() for part in parts if part.strip())


def text_for_encoder(label: Label, *, is_tuned: bool) -> str:
    """Return the text of a label as an encoder reads it: with keywords only where it was tuned.

    Args:
        label: With its pseudo description.
        is_tuned: Whether the encoder was fine-tuned; else keywords make its vectors worse.
    """
    return label.pseudo_description if is_tuned else pseudo_description(label)


def keyword_part(label: Label) -> str:
    """Return the keywords at the end of a label's pseudo description; "" where there are none."""
    before = pseudo_description(label, ())
    if not label.pseudo_description.startswith(before):
        return ""
    return label.pseudo_description[len(before) :].removeprefix(PART_END)
