"""`Embedding`: a trained table of vectors by position."""

from __future__ import annotations

from aotlite.eager.base.modes import no_grad
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.creation.from_data import empty
from aotlite.ir.arrays.device import CPU, Device
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import ShapeError
from aotlite.nn import init
from aotlite.nn.functional.embeddings import embedding, padding_row, refuse_sparse
from aotlite.nn.module import Module
from aotlite.nn.parameter import Parameter


class Embedding(Module):
    """A table of vectors by position: (*,) int64 -> (*, embedding_dim); starts standard normal.

    The row `padding_idx` starts with zeros and gets no gradient.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        _freeze: bool = False,
        device: Device = CPU,
        dtype: DType | None = None,
    ) -> None:
        refuse_sparse("Embedding", sparse)
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = padding_row("Embedding", padding_idx, num_embeddings)
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.sparse = sparse
        shape = (num_embeddings, embedding_dim)
        if _weight is not None and _weight.shape != shape:
            raise ShapeError(f"Embedding: the weight has shape {_weight.shape}, expected {shape}")
        given = empty(shape, dtype=dtype, device=device) if _weight is None else _weight
        self.weight = Parameter(given, requires_grad=not _freeze)
        if _weight is None:
            self.reset_parameters()

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Embedding:
        """A layer on the memory of this table, (n, d); its weight is not trained if `freeze`."""
        if embeddings.ndim != 2:
            raise ShapeError(
                f"Embedding: the embeddings have shape {embeddings.shape}, expected 2 dimensions"
            )
        rows, width = embeddings.shape
        return cls(
            rows,
            width,
            padding_idx,
            max_norm,
            norm_type,
            scale_grad_by_freq,
            sparse,
            embeddings,
            freeze,
        )

    def reset_parameters(self) -> None:
        """Draws initial values."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx].fill_(0)

    def forward(self, input: Tensor) -> Tensor:
        return embedding(
            input,
            self.weight,
            self.padding_idx,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
        )

    def extra_repr(self) -> str:
        defaults = {
            "padding_idx": None,
            "max_norm": None,
            "norm_type": 2.0,
            "scale_grad_by_freq": False,
        }
        changed = [
            f"{name}={getattr(self, name)}"
            for name, default in defaults.items()
            if getattr(self, name) != default
        ]
        return ", ".join([f"{self.num_embeddings}, {self.embedding_dim}", *changed])
