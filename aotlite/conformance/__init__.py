"""The aliasing conformance suite: it tests which rules about shared memory an array library keeps.

It runs on any library through an `Adapter` of small methods, each of which may be missing.
`aotlite conformance LIBRARY` runs it from the command line, in a process of its own.

>>> from aotlite.testing import conformance
>>> class Cells:  # a toy array whose slices copy
...     def __init__(self, values):
...         self.values = values
>>> class Toy(conformance.Adapter):
...     def from_list(self, values, dtype):
...         return Cells(values)
...     def to_list(self, a):
...         return a.values
...     def narrow(self, a, dim, start, length):
...         return Cells(a.values[start : start + length])
...     def setitem(self, a, key, value):
...         a.values[:] = [value] * len(a.values)
>>> report = conformance.check(Toy, rules=["TEN-2a"])
>>> print(report.table())
TEN-2a  narrow is a view: breaks: the view after the write to its base is [0], expected [100]
<BLANKLINE>
TEN-2a narrow is a view
    a = Cells([0])
    b = Cells(a.values[0:1])
    b.values
    a.values[:] = [100] * len(a.values)
    b.values
    # the view after the write to its base: got [0], expected [100]
<BLANKLINE>
Toy: keeps 0, breaks 1, absent 0
"""

from aotlite.conformance.adapter import Adapter
from aotlite.conformance.outcomes import Result
from aotlite.conformance.report import Report
from aotlite.conformance.rules import Rule, RuleBroken, all_rules
from aotlite.conformance.runner import check
from aotlite.conformance.unsupported import Absent

__all__ = [
    "Absent",
    "Adapter",
    "Report",
    "Result",
    "Rule",
    "RuleBroken",
    "all_rules",
    "check",
]
