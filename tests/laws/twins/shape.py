"""PyTorch's counterparts of ops that pad, repeat, join and lay out."""

from __future__ import annotations

from typing import Any

from tests.laws.twins.torch_twins import WITHOUT_TWIN, twins

_MODES = {"reflection_pad": "reflect", "replication_pad": "replicate", "circular_pad": "circular"}


def _padded(mode: str) -> Any:
    return lambda torch, x, padding: torch.nn.functional.pad(x, padding, mode=mode)


def _named(name: str) -> Any:
    return lambda torch, *args, **kwargs: getattr(torch, name)(*args, **kwargs)


WITHOUT_TWIN.update(
    {f"{name}_backward": "inside PyTorch's gradients of the paddings" for name in _MODES}
)

twins(
    **{name: _padded(mode) for name, mode in _MODES.items()},
    **{
        name: _named(name)
        for name in (
            "concat concatenate hstack vstack row_stack dstack column_stack block_diag meshgrid "
            "cartesian_prod"
        ).split()
    },
    pad=lambda torch, *args, **kwargs: torch.nn.functional.pad(*args, **kwargs),
    tril_indices=lambda torch, row, col, offset, dtype, device: torch.tril_indices(
        row, col, offset, dtype=dtype or torch.int64
    ),
    triu_indices=lambda torch, row, col, offset, dtype, device: torch.triu_indices(
        row, col, offset, dtype=dtype or torch.int64
    ),
)
