"""The exceptions of some ops from the laws of gradients, with reasons."""

from __future__ import annotations

CONSTANT = {
    "detach": "cutting the gradient off is its meaning",
    "hidden_alias": "it is no part of a history, as detach",
}
"""Ops that give no gradient where there is one, and why."""

WITHOUT_GRADIENT = {"linalg_qr": "expected 'reduced'"}
"""Ops that refuse a gradient for some arguments, as PyTorch's do, and what the error says."""

OF_SYMMETRIC = {
    "linalg_cholesky": "it reads one triangle; its gradient is that of a symmetric matrix",
    "linalg_eigh": "it reads one triangle; its gradient is that of a symmetric matrix",
}
"""Ops whose gradient is not that of each element by itself; `tests/ir/test_linalg.py` moves
matrices that stay symmetric."""

SAVED_FOR_SHAPE = {
    ("complex", "real"): "PyTorch saves it",
    ("complex", "imag"): "PyTorch saves it",
    ("div_floor", "self"): "PyTorch saves it for the zeros it gives",
    ("div_floor", "other"): "PyTorch saves it for the zeros it gives",
    ("div_trunc", "self"): "PyTorch saves it for the zeros it gives",
    ("div_trunc", "other"): "PyTorch saves it for the zeros it gives",
    ("angle_of_real", "self"): "PyTorch saves it, as of complex numbers, whose gradient reads it",
    ("masked_select", "self"): "PyTorch saves it: writing it before the backward raises there too",
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
"""Operands that a formula reads for their shape alone although they are saved, and why."""
