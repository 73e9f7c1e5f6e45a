"""Every op, declared once. Importing this package fills the op table (`aotlite.ir.op.OPS`)."""

from importlib import import_module
from pkgutil import walk_packages

from aotlite.ir.collector import collector_paused
from aotlite.ir.op import OPS
from aotlite.ir.op.operand import install_methods

# Each module declares the ops of one subject; what one needs of another it imports. All of it
# stays: the collector would look at it again and again, a tenth of the time to the first tensor.
with collector_paused():
    for _module in walk_packages(__path__, f"{__name__}."):
        import_module(_module.name)

    install_methods()

BUILT_IN = frozenset(OPS.values())
"""These ops: what they do is written in this package's files; users may declare others."""
