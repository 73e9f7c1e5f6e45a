"""The laws as reusable checks of your own ops, passes, partitioners, backends and wrappers.

Each function (`check_op`, `check_pass`, ...) runs its subject through named laws and returns a
`Checked`, or raises a `LawError` whose first line names the law, the subject and the smallest case
that breaks it. `docs/laws.md` lists all laws; `LAWS` are those of ops.
"""

from aotlite.testing.laws.errors import Checked, LawError
from aotlite.testing.laws.graphs.backends import BACKEND_LAWS, BackendLaw, check_backend
from aotlite.testing.laws.graphs.corpus import GraphCase, graphs
from aotlite.testing.laws.graphs.op_graphs import graphs_of
from aotlite.testing.laws.graphs.partitioners import PARTITIONER_LAWS, check_partitioner
from aotlite.testing.laws.graphs.passes import PASS_LAWS, GraphLaw, check_pass
from aotlite.testing.laws.graphs.tape import TAPE_LAW, check_tape
from aotlite.testing.laws.ops.check_op import check_op, of
from aotlite.testing.laws.ops.table import LAWS, Law
from aotlite.testing.laws.samples.sample import Sample
from aotlite.testing.laws.wrapper_functions import WrapperFunction
from aotlite.testing.laws.wrappers import WRAPPER_LAWS, WrapperLaw, check_subclass

__all__ = [
    "BACKEND_LAWS",
    "LAWS",
    "PARTITIONER_LAWS",
    "PASS_LAWS",
    "TAPE_LAW",
    "WRAPPER_LAWS",
    "BackendLaw",
    "Checked",
    "GraphCase",
    "GraphLaw",
    "Law",
    "LawError",
    "Sample",
    "WrapperFunction",
    "WrapperLaw",
    "check_backend",
    "check_op",
    "check_partitioner",
    "check_pass",
    "check_subclass",
    "check_tape",
    "graphs",
    "graphs_of",
    "of",
]
