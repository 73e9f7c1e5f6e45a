"""PyTorch's second names of dtypes: `float` for float32, `long` for int64, and so on.

They have a module of their own, as some of them shadow Python's types.
"""

from aotlite.ir.dtypes import bool_ as bool
from aotlite.ir.dtypes import complex64 as cfloat
from aotlite.ir.dtypes import complex128 as cdouble
from aotlite.ir.dtypes import float16 as half
from aotlite.ir.dtypes import float32 as float
from aotlite.ir.dtypes import float64 as double
from aotlite.ir.dtypes import int16 as short
from aotlite.ir.dtypes import int32 as int
from aotlite.ir.dtypes import int64 as long

__all__ = ["bool", "cdouble", "cfloat", "double", "float", "half", "int", "long", "short"]
