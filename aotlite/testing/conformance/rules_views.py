"""View ops: their values, and that they share memory with what they view (TEN-2)."""

from __future__ import annotations

from functools import partial

from aotlite.testing.conformance.adapter import Adapter
from aotlite.testing.conformance.cases import views
from aotlite.testing.conformance.rules import Rule, expect, maybe, rule
from aotlite.testing.conformance.twins import Chain, chain, fill, see


def check_shares(on: Adapter, case: Chain) -> None:
    """A view shows what is written to its base afterwards."""
    base, made = chain(on, case)
    for view in made:
        see(on, view, "the view")
    fill(on, base, 100)
    for view in made:
        see(on, view, "the view after the write to its base")
        said = maybe(on.shares_memory, base.array, view.array)
        if said is not None and view.view.addresses():
            expect(said, True, "what the library says of shared memory")


def shares(id: str, name: str, title: str, *arguments: tuple[object, ...]) -> Rule:
    """The rule that an op makes views, over all layouts and these arguments."""
    return rule(id, title, partial(views, name, arguments))(check_shares)


narrow = shares("TEN-2a", "narrow", "narrow is a view", (0, 0, 1), (0, 1, 1), (1, 0, 1))
select = shares("TEN-2b", "select", "select is a view", (0, 0), (0, -1), (1, 1))
transpose = shares("TEN-2c", "transpose", "transpose is a view", (0, 1), (1, 2))
