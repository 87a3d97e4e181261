"""The model of label names after changes of the vocabulary."""

from __future__ import annotations

import numpy as np

from longtail.models.edit.vocabulary.labels import ChangedLabels
from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.models.lexical.matcher import FindHistory
from longtail.models.lexical.name_model import NameModel, named_label


def changed_names(model: NameModel, changed: ChangedLabels) -> NameModel | None:
    """Return the same classifier for the labels as they are named now; None where nothing changed.

    Names of retired labels are found no more. How often a name was right stays with the label; of a
    label that was merged into one that has its name now, it goes over to that.

    Args:
        model: Of the labels before.
        changed: They, after changes.
    """
    if not changed.parents:
        return None
    labels = [*model.catalogue, *changed.labels[changed.num_before :]]
    for row, parents in changed.parents.items():
        others = changed.full_names.get(row, labels[row].alternative_names)
        now = changed.labels[row]
        labels[row] = named_label(
            Label(
                now.id,
                now.name,
                alternative_names=others,
                parents=parents,
                is_retired=now.is_retired,
            )
        )
    num_new = len(labels) - len(model.catalogue)
    none = np.zeros((num_new, model.history.found.shape[1]), dtype=np.int64)
    history = FindHistory(
        np.concatenate([model.history.found, none]), np.concatenate([model.history.right, none])
    )
    for row, other in changed.into.items():
        if labels[row].name in {labels[other].name, *labels[other].alternative_names}:
            for finds in (history.found, history.right):
                finds[other] += finds[row]
                finds[row] = 0
    return model.with_catalogue(LabelCatalogue(labels), history)
