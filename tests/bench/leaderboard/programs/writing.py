"""What the programs of all peers share: reading features, writing predictions, telling costs."""

import json
import resource

import numpy as np
import scipy.sparse as sp


def read(arguments):
    """Return training features, labels, judged features, settings and the file to write."""
    folder, output, settings = arguments[1:]
    features, labels, judged = (
        sp.csr_matrix(sp.load_npz(f"{folder}/{name}.npz"), dtype=np.float32)
        for name in ("X", "Y", "judged")
    )
    for matrix in (features, labels, judged):
        matrix.sort_indices()
    return features, labels, judged, json.loads(settings), output


def pairs_of(matrix):
    """Return the pairs of column and value of each row."""
    starts, stops = matrix.indptr[:-1], matrix.indptr[1:]
    return [
        list(
            zip(matrix.indices[start:stop].tolist(), matrix.data[start:stop].tolist(), strict=True)
        )
        for start, stop in zip(starts, stops, strict=True)
    ]


def write_predictions(path, rows, num_labels):
    """Write pairs of label and score as `longtail compare` reads a ranking, the best first."""
    width = max(map(len, rows))
    labels = np.full((len(rows), width), -1)
    scores = np.full((len(rows), width), -np.inf, dtype=np.float32)
    for number, row in enumerate(rows):
        for place, pair in enumerate(sorted(row, key=lambda pair: -pair[1])):
            labels[number, place], scores[number, place] = pair
    np.savez(path, labels=labels, scores=scores, num_labels=num_labels)


def finish(training, ranking, num_documents):
    """Print CPU seconds of training, CPU milliseconds a text, and the peak of memory in GiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    each = 1000 * ranking / num_documents
    print(json.dumps({"training_seconds": training, "milliseconds": each, "memory_gib": peak}))
