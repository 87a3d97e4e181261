"""Features that were made elsewhere, as a model reads them: each row at unit length."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float32
from scipy.sparse import csr_array
from sklearn.preprocessing import normalize


def unit_rows(
    features: Float32[csr_array, "document feature"],
) -> Float32[csr_array, "document feature"]:
    """Return the rows scaled to length one, rows of zeros as they are.

    Values are not weighed: whoever made them has chosen counts, tf-idf or anything else.

    Args:
        features: Finite; left as it is.
    """
    rows = csr_array(features, dtype=np.float32, copy=True)
    rows.sum_duplicates()
    return csr_array(normalize(rows, copy=False))
