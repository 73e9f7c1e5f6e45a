"""`aotlite.func`: transforms of functions, and traces, by torch.func's names.

    functionalize(f)      does what f does, by ops that write nothing
    make_fx(f)            the graph of a call of f
    FakeTensorMode        a block whose tensors have no data
    functional_state(x)   what functionalize knows of a tensor while it runs a function

Rules: FNT-1 to FNT-22. Spec: `specs/functionalize_transform.md`.
"""

from aotlite.export.fake_mode import FakeTensorMode
from aotlite.func.functional.state import (
    FunctionalState,
    functional_state,
    is_functional_tensor,
    sync,
)
from aotlite.func.functional.transform import functionalize
from aotlite.func.trace import make_fx

__all__ = [
    "FakeTensorMode",
    "FunctionalState",
    "functional_state",
    "functionalize",
    "is_functional_tensor",
    "make_fx",
    "sync",
]
