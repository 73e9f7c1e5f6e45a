"""Every op, declared once. Importing this package fills the op table (`aotlite.ir.op.OPS`)."""

from importlib import import_module
from pkgutil import iter_modules

from aotlite.ir.op import OPS
from aotlite.ir.operand import install_methods

# Each module declares the ops of one subject; what one needs of another it imports.
for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

install_methods()

BUILT_IN = frozenset(OPS.values())
"""These ops: what they do is written in this package's files; users may declare others."""
