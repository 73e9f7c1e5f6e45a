"""Every op, declared once. Importing this package fills the op table (`aotlite.ir.op.OPS`)."""

from importlib import import_module
from pkgutil import walk_packages

from aotlite.ir.collector import collector_paused
from aotlite.ir.op import OPS
from aotlite.ir.op.operand import install_methods

# Each module declares the ops of one subject, and imports those of others that it uses. All these
# objects stay alive: the collector, visiting them repeatedly, would take a tenth of the import.
with collector_paused():
    for _module in walk_packages(__path__, f"{__name__}."):
        import_module(_module.name)

    install_methods()

BUILT_IN = frozenset(OPS.values())
"""The ops of this package. Users may declare others."""
