"""PyTorch's counterparts of ops that ask where something holds."""

from aotlite.ir.op import OPS, DataOp
from tests.laws.twins.torch_twins import WITHOUT_TWIN, twins

DATA_DEPENDENT = [op.name for op in OPS.values() if isinstance(op, DataOp)]

WITHOUT_TWIN.update(
    {
        "masked_take": "PyTorch makes it of masked_select, cat and view (masked_scatter_backward)",
        "repeat_interleave_sized": "PyTorch trusts the output_size that it is given",
        **{
            f"{name}_{form}": "PyTorch has no graph with the size of such a result"
            for name in DATA_DEPENDENT
            for form in ("count", "fitted")
        },
    }
)

twins(
    nonzero=lambda torch, x: torch.nonzero(x),
    argwhere=lambda torch, x: torch.argwhere(x),
    repeat_interleave=lambda torch, repeats: torch.repeat_interleave(repeats),
    **{"repeat_interleave()": lambda torch, *args, **more: torch.repeat_interleave(*args, **more)},
)
