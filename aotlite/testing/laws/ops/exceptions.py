"""The exceptions of some ops from the laws of gradients, with reasons."""

from __future__ import annotations

CONSTANT = {
    "detach": "it removes the history",
    "hidden_alias": "it removes the history, as detach does",
}
"""Op that passes no gradient on although its derivative is not zero -> the reason."""

WITHOUT_GRADIENT = {"linalg_qr": "expected 'reduced'"}
"""Op that refuses a gradient for some arguments, as PyTorch's does -> words of the error."""

OF_SYMMETRIC = {
    "linalg_cholesky": "it reads one triangle; its gradient is that of a symmetric matrix",
    "linalg_eigh": "it reads one triangle; its gradient is that of a symmetric matrix",
}
"""Op whose gradient assumes a symmetric matrix -> the reason. Differences would have to move it as
a symmetric matrix, as `tests/ir/test_linalg.py` does."""

SAVED_FOR_SHAPE = {
    ("complex", "real"): "PyTorch saves it",
    ("complex", "imag"): "PyTorch saves it",
    ("div_floor", "self"): "PyTorch saves it for the zeros it gives",
    ("div_floor", "other"): "PyTorch saves it for the zeros it gives",
    ("div_trunc", "self"): "PyTorch saves it for the zeros it gives",
    ("div_trunc", "other"): "PyTorch saves it for the zeros it gives",
    ("angle_of_real", "self"): "PyTorch saves it, as of complex numbers, whose gradient reads it",
    ("masked_select", "self"): "PyTorch saves it: writing it before the backward raises there too",
    ("masked_select_fitted", "self"): "it is masked_select, with a count",
    ("gather", "self"): "PyTorch saves it: writing it before the backward raises there too",
    ("take", "self"): "PyTorch saves it: writing it before the backward raises there too",
    ("put", "source"): "PyTorch saves it: writing it before the backward raises there too",
    ("reflection_pad", "self"): "PyTorch saves it: writing it before the backward raises there too",
    ("replication_pad", "self"): "PyTorch saves it: writing it before the backward raises there",
    ("index_copy", "source"): "PyTorch saves it: writing it before the backward raises there too",
    ("index_add", "source"): "PyTorch saves it: writing it before the backward raises there too",
    ("conv2d", "input"): "PyTorch saves both operands whenever one gradient is needed",
    ("conv2d", "weight"): "PyTorch saves both operands whenever one gradient is needed",
    ("cummax", "self"): "PyTorch saves it next to the indices",
    ("cummin", "self"): "PyTorch saves it next to the indices",
    ("conv2d_input", "self"): "PyTorch's transposed convolution saves both operands",
    ("conv2d_input", "weight"): "PyTorch's transposed convolution saves both operands",
    ("max_pool2d_with_indices", "self"): "PyTorch saves it next to the indices",
    ("avg_pool2d", "self"): "PyTorch saves it: writing it before the backward raises there too",
    ("adaptive_max_pool2d", "self"): "PyTorch saves it next to the indices",
    ("nll_loss", "self"): "PyTorch saves it, as for gather",
    ("adaptive_avg_pool2d", "self"): "PyTorch saves it, as for avg_pool2d",
    ("layer_norm", "input"): "PyTorch saves all operands whenever one gradient is needed",
    ("layer_norm", "weight"): "PyTorch saves all operands whenever one gradient is needed",
    ("layer_norm", "bias"): "PyTorch saves all operands whenever one gradient is needed",
}
"""(Op, operand) that is saved although the formula reads its shape alone -> the reason."""
