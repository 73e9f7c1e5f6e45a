"""Generated lines that give a tape node the storages of its saved tensors.

Used by stage 10 alone. The version of a saved tensor is checked if eager's backward reads it, too.
One that eager's backward does not read is copied on write. A byte-checked one is copied where a
write can go unnoticed, and compared.
Rules: SAV-2, PART-37, PART-40. Spec: `specs/s10_runtime.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aotlite.backends.python_source import listed
from aotlite.stages.records.backward.gradient_reads import SavedOf
from aotlite.stages.records.backward.partition import SavedOwner
from aotlite.stages.s10_runtime.source import MANY, FunctionSource

Storages = Callable[[SavedOwner], str]
"""The expression for the storage of an owner of memory."""


# Note [saved tensors and their versions]
#     def f(x, w): return (x * w).sum(), w.exp().sum()
#     a, b = f(x, w); x.zero_()
# In eager a.backward() raises, since it reads x, and b.backward() does not. The call's own saved
# values do not tell this: min-cut may save others. So stage 4 notes the tensors that eager's tape
# saves on memory of inputs and results, and which results' gradients read each (`GradientReads`).
# The call notes their versions at its end, and the backward compares those that it reads.
def add_saved_versions(
    source: FunctionSource, saved: Sequence[SavedOf], storage_of: Storages
) -> None:
    """Adds the lines that note the versions of saved tensors of inputs and results (SAV-2)."""
    if not saved:
        return
    owners = [each.owner for each in saved]
    if len(owners) > MANY:
        source.add(f"storages = {listed([storage_of(owner) for owner in owners])}")
        source.add("node.saved_versions = [(s, s.version) for s in storages]")
        return
    names = _named(source, owners, storage_of, "s")
    source.add(
        f"node.saved_versions = {listed([f'({names[o]}, {names[o]}.version)' for o in owners])}"
    )


def add_write_observers(
    source: FunctionSource, observed: Sequence[tuple[int, SavedOwner]], storage_of: Storages
) -> None:
    """Adds the lines that make the node an observer of writes (PART-37, PART-40).
    `observed` are the plan's `write_observed`."""
    if not observed:
        return
    owners = [owner for _, owner in observed]
    names = _named(source, owners, storage_of, "l")
    source.add(f"node.observed_storages = {listed([names[owner] for owner in owners])}")
    source.add(*[f"{name}.add_write_observer(node)" for name in names.values()])


def _named(
    source: FunctionSource, owners: Sequence[SavedOwner], storage_of: Storages, letter: str
) -> dict[SavedOwner, str]:
    """Adds variables for the owners' storages; their names by owner."""
    names = {owner: f"{letter}{i}" for i, owner in enumerate(dict.fromkeys(owners))}
    for owner, name in names.items():
        source.add(f"{name} = {storage_of(owner)}")
    return names
