"""Tangents that have to arrive together, and the errors if they do not.

A backward is recorded with the tangents of all results. If it would compute something else with
some of them absent, and was not recorded for each subset, such a backward is refused at run time.
Used by stages 4 and 10. Rules: TAN-8. Spec: `specs/s4_joint.md`.
"""

from __future__ import annotations

import attrs

from aotlite.ir.errors import AutogradError, TangentError, noted
from aotlite.ir.graph.role import Role
from aotlite.stages.records.base import Record


@attrs.frozen(eq=False, repr=False)
class RequiredArrivals(Record):
    """If a tangent of `others` arrives, one of `needed` has to arrive too."""

    needed: frozenset[Role]
    others: frozenset[Role]
    function: str = ""
    """The custom function that gets None for absent gradients; empty for a sum of wrappers."""

    def check(self, absent: frozenset[Role]) -> None:
        """Raises if, with the tangents `absent`, some of `others` arrive and none of `needed`."""
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
