"""The theory of DEPL section 4: what of a sparse classifier survives in a label's keywords.

The paper (2023, section 4.2 and appendix A.2) takes a document's tf-idf vector x with ||x|| <= 1,
label vectors with ||w_l|| <= 1 and w_l >= 0, and v_l: w_l on its k keywords, 0 elsewhere.

- Definition 1: v_p is delta-bounded on x if <x, v_p> >= <x, w_p> - delta.
- Definition 2: the error margin of p above n is mu(x, w_p, w_n) = <x, w_p - w_n>; epsilon is the
  least one over the M negative labels n that the classifier ranks below p.
- Lemma 4: |mu(x, w_p, w_n) - mu(x, v_p, v_n)| <= delta where both are delta-bounded; that the
  margin falls by at most delta needs w_n >= 0, so that <x, v_n> <= <x, w_n>, and delta of p alone.
- Theorem 3: a dense encoder is modelled as a Gaussian E of d rows with entries of variance 1/d. The
  probability that mu(Ex, Ev_p, Ev_n) <= 0 for any n is at most 4 M exp(-(epsilon - delta)^2 d/50).

Our text of the paper has lost its signs, roots and fractions. Checked by doing the proofs again:

- Eq. 11 is P(|<Ea, Eb> - <a, b>| >= gamma/2 (||a||^2 + ||b||^2)) <= 4 exp(-gamma^2 d/8). "For
  every gamma > 0" is too much: the tail of chi-square obeys it up to about 1.6. It is used with
  gamma = 2/5 (epsilon - delta) <= 2/5 and ||a||^2 + ||b||^2 <= 1 + 4, which gives the 50.
- "N(0, d^-1/2)" names the standard deviation.
- The corollary, probability at most 1/M, is printed for epsilon - delta >= 10 sqrt(log(M)/d), which
  gives 4/M; it needs 10 sqrt(log(2 M)/d).

With w >= 0 a margin is at most 1, so Theorem 3 says nothing of any label where 4 M >= exp(d/50):
with 384 dimensions from 542 negatives on. `keyword_bound` is a sharper one in the same model.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float32, Float64, Int64
from scipy.sparse import csr_array

from longtail.models.scorers.sparse import SparseModel


def theorem_bound(
    epsilon: Float[np.ndarray, label],
    delta: Float[np.ndarray, label],
    num_negatives: Int64[np.ndarray, label],
    dim: int,
) -> Float64[np.ndarray, label]:
    """Return 4 M exp(-(epsilon - delta)^2 d/50), at most 1: DEPL, 2023, Theorem 3.

    It is 1 where epsilon <= delta, of which the theorem says nothing.
    """
    left = np.maximum(epsilon.astype(np.float64) - delta, 0)
    sums = 4 * num_negatives * np.exp(-(left**2) * dim / 50)
    bound: Float64[np.ndarray, label] = np.minimum(sums, 1)
    return bound


def least_margin(num_negatives: int, dim: int) -> float:
    """Return the epsilon - delta above which Theorem 3 says anything: sqrt(50 ln(4 M) / d)."""
    return float(np.sqrt(50 * np.log(4 * num_negatives) / dim))


def keyword_bound(cosine: Float[np.ndarray, "*shape"], dim: int) -> Float64[np.ndarray, "*shape"]:
    """Return 1/2 (1 - cosine^2)^(d/2), or 1 for a cosine <= 0: a bound of ours on one error.

    The error is Theorem 3's, <Ex, Eb> <= 0 with b = v_p - v_n, and the cosine is that of x and b.
    Write b/||b|| as cosine x/||x|| + sine y with y orthogonal to x; Ex and Ey are independent, so
    given Ex the error is that of a standard normal below -||Ex|| sqrt(d) cosine/sine (x of length
    1), at most 1/2 exp(-||Ex||^2 d cosine^2 / (2 sine^2)); ||Ex||^2 d is chi-square with d degrees
    of freedom, and the mean of that is the bound. It needs no conditions on the label vectors.
    Under those of Theorem 3 the cosine is at least (epsilon - delta)/2, and this is at most
    1/2 exp(-(epsilon - delta)^2 d/8), where the theorem has 4 exp(-(epsilon - delta)^2 d/50).
    """
    kept = np.clip(cosine, 0, 1).astype(np.float64)
    with np.errstate(divide="ignore"):
        bound = 0.5 * np.exp(dim / 2 * np.log1p(-(kept**2)))
    return np.where(kept > 0, bound, 1.0)


@dataclass(frozen=True, slots=True)
class Normalisation:
    """The transformation of signed classifiers with biases to the conditions of DEPL section 4.

    Documents become [x, c] / sqrt(1 + c^2), and label vectors [w_l + shift, bias_l / c] sqrt(1 +
    c^2) / scale: then every document is of length <= 1, every label vector too, and none has a
    negative entry. All scores of a document become (score + <x, shift> - min bias) / scale, so
    ranks and quotients of margins stay. A shift that keeps ranks must be the same for all labels;
    this one is the least that leaves no negative entry. It isn't sparse: what a document's words
    weigh for other labels is added to delta, and no keyword carries it.

    Attributes:
        shift: Added to the weights of every label: the greatest -w_li of the feature, or 0.
        bias: b_l minus the least of them. The constant feature is no word, so no keyword has it.
        constant: c, the value of the constant feature; 0 if all biases are equal. The choice
            c^2 = max bias / max ||w_l + shift|| makes the scale small.
        scale: What scores and margins are divided by.
    """

    shift: Float64[np.ndarray, feature]
    bias: Float64[np.ndarray, covered]
    constant: float
    scale: float


def normalise(model: SparseModel) -> Normalisation:
    """Return the transformation of these classifiers; labels without one have no part in it."""
    weights = csr_array(model.weights, dtype=np.float64)
    shift = np.zeros(weights.shape[1])
    np.maximum.at(shift, weights.indices, -weights.data)
    squares = row_sums(weights.power(2)) + 2 * (weights @ shift) + shift @ shift
    squares = np.maximum(squares, 0)  # a sum of squares but for rounding
    bias = model.bias.astype(np.float64) - model.bias.min()
    longest = np.sqrt(squares.max())
    constant_square = bias.max() / longest if longest > 0 else float(bias.max() > 0)
    if constant_square > 0:
        squares = (1 + constant_square) * (squares + bias**2 / constant_square)
    scale = float(np.sqrt(squares.max())) or 1.0
    return Normalisation(shift, bias, float(np.sqrt(constant_square)), scale)


def keyword_weights(
    weights: Float32[csr_array, "covered feature"], count: int
) -> Float32[csr_array, "covered feature"]:
    """Return v_l of every label: its `count` greatest positive weights, all others left out.

    The paper's choice, without what `descriptions` may drop. Of equal weights the smaller column
    comes first; a label with fewer positive weights has fewer keywords.
    """
    positive = csr_array(weights.maximum(0))
    positive.eliminate_zeros()
    lengths = np.diff(positive.indptr)
    rows = np.repeat(np.arange(len(lengths)), lengths)
    order = np.lexsort((positive.indices, -positive.data, rows))
    place = np.arange(len(order)) - np.repeat(positive.indptr[:-1], lengths)
    chosen = order[place < count]
    return csr_array(
        (positive.data[chosen], (rows[chosen], positive.indices[chosen])), shape=weights.shape
    )


def row_dots(
    left: Float[csr_array, "row feature"], right: Float[csr_array, "row feature"]
) -> Float64[np.ndarray, row]:
    """Return the inner product of each row with the same row of the other."""
    return row_sums(left.multiply(right))


def row_sums(matrix: Float[csr_array, "row feature"]) -> Float64[np.ndarray, row]:
    """Return the sum of each row."""
    sums: Float64[np.ndarray, row] = np.asarray(matrix.sum(axis=1, dtype=np.float64)).ravel()
    return sums
