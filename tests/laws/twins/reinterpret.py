"""How PyTorch is called for the ops and composites in `ir/ops/views/reinterpret.py`."""

import numpy as np

from tests.laws.twins.torch_twins import Difference, differences, twins

twins(
    view_dtype=lambda torch, x, dtype: x.view(dtype),
    view_dtype_copy=lambda torch, x, dtype: torch.ops.aten.view_copy(x.contiguous(), dtype),
    view_as_complex_copy=lambda torch, x: torch.view_as_complex_copy(x.contiguous()),
    **{"real()": lambda torch, x: x.real},
)
differences(
    Difference(
        ("view_as_complex", "view_as_complex_copy"),
        "call",
        "there is no complex dtype of 16-bit parts",
        lambda sample: sample.args[0].dtype == np.float16,
    ),
    Difference(
        ("view_as_real",),
        "gradient",
        "PyTorch's fails for an empty gradient that has strides of 0, as those from NumPy have",
        lambda sample: sample.args[0].size == 0,
    ),
    Difference(
        ("view_as_complex_copy",),
        "gradient",
        "PyTorch's has no derivative; view_as_complex is compared",
    ),
)
