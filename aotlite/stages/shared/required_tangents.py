"""Gradients that have to arrive together: a backward that was recorded with all of them says so.

Used by stages 4 and 10. A backward is recorded once, from the gradients of all results. Where what
it computes is another thing when some do not arrive, and was not recorded for each choice of them,
it is refused for these. Rules: TAN-8. Spec: `specs/s4_joint.md`.
"""

from __future__ import annotations

from typing import Any

import attrs

from aotlite.ir.errors import AutogradError, TangentError, noted
from aotlite.stages.records.base import Record


@attrs.frozen(eq=False, repr=False)
class RequiredArrivals(Record):
    """Results of which one's gradient has to arrive if one of the others does."""

    needed: frozenset[Any]
    others: frozenset[Any]
    function: str = ""
    """The custom function that is told which arrive; empty where wrappers are summed."""

    def check(self, absent: frozenset[Any]) -> None:
        """Raises if, without these, the others arrive and those that are needed do not."""
        if self.needed <= absent and not self.others <= absent:
            names = ", ".join(sorted(map(str, self.needed | self.others)))
            raise self._of_function(names) if self.function else _of_sum(names)

    def _of_function(self, names: str) -> Exception:
        return noted(
            AutogradError(
                f"backward: gradients of some of {names} arrive, expected all of them or none: "
                f"{self.function} is given None for those that do not (set_materialize_grads), and "
                "was recorded with all"
            ),
            "Sum the losses before backward(), or leave set_materialize_grads out. Of a function "
            "with up to four results, whose backward has no effects, each choice is recorded. "
            "(TAN-8)",
        )


def _of_sum(names: str) -> Exception:
    return noted(
        TangentError(
            f"backward: gradients of some of {names} arrive, expected all of them or none: they "
            "are summed as wrappers of several classes or specs, and the compiled sum is of one"
        ),
        "Sum the losses before backward(), or give the class a method "
        "__coerce_same_metadata_as_tangent__(spec, kind). (TAN-8)",
    )
