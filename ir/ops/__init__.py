"""Every op, declared once. Importing this package fills the op table (`aotlite.ir.op.OPS`)."""

from aotlite.ir.operand import install_methods
from aotlite.ir.ops import (
    create,
    index,
    nn,
    normalize,
    pointwise,
    products,
    random,
    reduce,
    select,
    special,
    structure,
    views,
)

__all__ = [
    "create",
    "index",
    "nn",
    "normalize",
    "pointwise",
    "products",
    "random",
    "reduce",
    "select",
    "special",
    "structure",
    "views",
]

install_methods()
