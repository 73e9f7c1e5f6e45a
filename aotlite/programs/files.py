"""A program as the bytes of a file: records, graphs and arrays.

What is read is checked before anything is made of it, and nothing of it is code.
Spec: `specs/programs.md`, PRG-5 to PRG-8.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import optree

from aotlite.ir.errors import ExportError, FormatError, noted
from aotlite.ir.graph.files.values import Said, Unread
from aotlite.ir.graph.role import ROLES, Hidden, Part, Primal
from aotlite.pipeline.order_records import OrderRecords
from aotlite.pipeline.record_files import Document, decoded, encoded
from aotlite.pipeline.record_files.part_check import (
    as_error,
    check_guards,
    check_orders,
    check_parts,
    hints_of,
)
from aotlite.pipeline.size_regions.records import StageRecords
from aotlite.programs.archive import MAX_BYTES, Archive, unpacked
from aotlite.programs.parameters import Parameters
from aotlite.programs.records import (
    Arguments,
    ProgramRecords,
    rooms_from,
    sources_from,
    written_sources,
)
from aotlite.programs.state import ProgramState, Slots, check_rows, slot, state_from, written_state
from aotlite.stages.records.capture import Containers
from aotlite.stages.records.guards.access_paths import AccessPath
from aotlite.stages.records.guards.guard_records import hidden_places
from aotlite.stages.records.version_counts import CountPlan
from aotlite.stages.s10_runtime.guards.call_facts import ComparedCall
from aotlite.stages.s10_runtime.guards.guard_sources import GuardedFacts

_KINDS: Final[Mapping[str, type[Any]]] = {
    "name": str,
    "names": tuple,
    "places": tuple,
    "arrays": tuple,
    "containers": Containers,
    "records": StageRecords,
    "facts": GuardedFacts,
    "call": ComparedCall,
    "baked_in": tuple,
    "order": int,
    "orders": tuple,
    "reached": tuple,
    "sources": dict,
    "rooms": dict,
    "parameters": tuple,
    "state": tuple,
}
"""The parts of a program in a file, with their types."""
_LATER: Final[Mapping[str, Any]] = {"rooms": {}, "parameters": ()}
"""The parts that files of earlier releases do not have, and what stands for them."""


def packed(of: ProgramRecords, state: ProgramState) -> bytes:
    """The bytes of the file of a program. Raises ExportError or UnsupportedError for one that no
    file can hold."""
    if sys.byteorder != "little":
        raise ExportError("export: this machine is big-endian, expected a little-endian one")
    rows, arrays = written_state(state)
    parameters = of.arguments.parameters.written()
    root = {
        "name": of.name,
        "names": of.arguments.names,
        "places": of.arguments.places,
        "arrays": of.arguments.arrays,
        "containers": Containers(of.arguments.spec),
        "records": of.records,
        "facts": of.facts,
        "call": of.call,
        "baked_in": of.baked_in,
        "order": of.order,
        "orders": of.orders,
        "reached": of.reached,
        "sources": written_sources(of.sources),
        **({"rooms": dict(of.rooms)} if of.rooms else {}),
        **({"parameters": parameters} if parameters else {}),
        "state": tuple(rows),
    }
    outside = {"state": state.slots}
    document = encoded(root, guards=of.guards, outside=outside)
    return Archive(document, tuple(arrays)).packed(_version())


def _version() -> str:
    return str(getattr(sys.modules[__name__.partition(".")[0]], "__version__", ""))


def program_of(data: bytes, max_bytes: int = MAX_BYTES) -> tuple[ProgramRecords, ProgramState]:
    """The program of a file's bytes. Raises FormatError for other bytes."""
    if data.startswith(b'{"format": "aotlite bundle"'):
        error = FormatError(
            "program: the file is a bundle, expected a program, as save() writes it"
        )
        raise noted(error, "A bundle is read by aotlite.load(path).")
    slots, read = Slots([]), list[Any]()

    def check(document: Document, sizes: Sequence[int]) -> None:
        found = decoded(document, outside={"state": slots})
        try:
            root = _parts(found.root)
            check_rows(root["state"], sizes)
        except Unread as error:
            raise as_error(error, "program") from None
        read.extend((found, root))

    archive = unpacked(data, max_bytes, check)
    found, root = read
    try:
        state = state_from(root["state"], archive.arrays)
        slots.tensors = state.slots.tensors
        records = _records(root, found.guards)
        _check(records, len(state))
        _check_call(records, slots)
        values = hints_of([*[each.meta for each in records.call.inputs], *records.call.leaves])
        check_parts(records.records, values)
        check_orders(records.records, records.orders, values)
        check_guards(_graphs(records), records.guards)
    except Unread as error:
        raise as_error(error, "program") from None
    return records, ProgramState(state.entries, slots)


def _parts(root: Any) -> dict[str, Any]:
    if type(root) is dict:
        root = {**_LATER, **root}
    if type(root) is not dict or root.keys() != _KINDS.keys():
        raise Unread(Said("of other parts"), f"one of {', '.join(_KINDS)}", ".root")
    for name, kind in _KINDS.items():
        if type(root[name]) is not kind:
            raise Unread(Said(f"a {type(root[name]).__name__}"), f"a {kind.__name__}", f".{name}")
    return root


def _records(root: dict[str, Any], guards: Any) -> ProgramRecords:
    names = root["names"]
    texts = (*names, *root["baked_in"])
    if not all(type(each) is str for each in texts):
        raise Unread(Said("no texts"), "texts", ".names")
    for key, most in (("places", len(names)), ("arrays", len(root["places"]))):
        numbers = root[key]
        if not all(type(x) is int and 0 <= x < most for x in numbers) or list(numbers) != sorted(
            set(numbers)
        ):
            raise Unread(Said("other numbers"), "numbers of arguments, in order", f".{key}")
    spec = root["containers"].spec
    if spec is None or spec.num_leaves != len(root["places"]) or not _is_of_a_call(spec):
        raise Unread(Said("other containers"), "those of (args, kwargs)", ".containers")
    form: Any = optree.tree_unflatten(spec, [0] * spec.num_leaves)
    parameters = Parameters.read(root["parameters"], form)
    if parameters is None:
        raise Unread(Said("other data"), "parameters that take the arguments", ".parameters")
    sources = sources_from(root["sources"])
    if sources is None or any(each.argument >= len(names) for each in sources.values()):
        raise Unread(Said("other data"), "the places of symbols", ".sources")
    rooms = rooms_from(root["rooms"], sources)
    if rooms is None:
        raise Unread(Said("other data"), "bounds of symbols", ".rooms")
    if not all(isinstance(each, ROLES) for each in root["reached"]):
        raise Unread(Said("other data"), "roles", ".reached")
    if root["order"] < 1:
        raise Unread(root["order"], "1 or more", ".order")
    _check_orders(root["orders"])
    return ProgramRecords(
        name=root["name"],
        arguments=Arguments(names, root["places"], spec, root["arrays"], parameters),
        records=root["records"],
        facts=root["facts"],
        call=root["call"],
        baked_in=root["baked_in"],
        order=root["order"],
        orders=root["orders"],
        reached=root["reached"],
        sources=sources,
        guards=guards,
        rooms=rooms,
    )


def _is_of_a_call(spec: Any) -> bool:
    """Whether it is that of a tuple of a tuple and a dict with texts as keys."""
    tree = optree.tree_unflatten(spec, [0] * spec.num_leaves)
    match tree:
        case (tuple(), dict() as kwargs):
            return all(type(key) is str for key in kwargs)
    return False


def _check_orders(orders: Any) -> None:
    for each in orders:
        match each:
            case (tuple() as arriving, OrderRecords(), tuple() as behind) if all(
                type(x) is tuple and len(x) == 2 and isinstance(x[0], ROLES) and type(x[1]) is bool
                for x in arriving
            ):
                _check_orders(behind)
            case _:
                raise Unread(Said("other data"), "orders of derivatives", ".orders")


def _check(records: ProgramRecords, tensors: int) -> None:
    """Compares the parts with each other: roles, numbers of inputs and results."""
    count, cut = len(records.arguments.names), records.records
    meta = cut.meta
    given = {each.role for each in meta.inputs}
    for role in (*given, *records.facts.inputs, *[each.role for each in records.call.inputs]):
        whole = role.whole if isinstance(role, Part) else role
        most = count if isinstance(whole, Primal) else tensors
        if isinstance(role, Part) or whole.index >= most:
            raise Unread(str(role), "an argument or a tensor of the state", ".records.meta.inputs")
    if len(records.call.leaves) != count:
        raise Unread(Said(f"{len(records.call.leaves)} arguments"), f"{count}", ".call.leaves")
    if {*records.facts.inputs} != {each.role for each in records.call.inputs}:
        raise Unread(Said("other inputs"), "those of the facts", ".call.inputs")
    spec = cut.containers.spec
    if spec is None or spec.num_leaves > len(meta.outputs):
        raise Unread(Said("other containers"), "those of the results", ".records.containers")
    if meta.count_plan is not None and not _fits(meta.count_plan):
        raise Unread(Said("storages that it does not have"), "its own", ".records.meta.count_plan")
    for number in _hidden(cut):
        if number >= tensors:
            raise Unread(number, f"one of {tensors} tensors of the state", ".records")


def _graphs(records: ProgramRecords) -> list[Any]:
    partition = records.records.partition
    return [partition.forward, partition.backward]


def _check_call(records: ProgramRecords, slots: Slots) -> None:
    """Compares the facts of the call with the records, the state and the arguments."""
    call, cut = records.call, records.records
    given = {each.role: each.meta for each in call.inputs}
    metas = {each.role: each.meta for each in cut.meta.inputs}
    if given.keys() != metas.keys() or len(given) != len(call.inputs):
        raise Unread(Said("other inputs"), "those of the records", ".call.inputs")
    places = hidden_places(records.facts.guards)
    role: Any
    for role, meta in given.items():
        if metas[role] is not meta:
            raise Unread(Said(f"{role}, which is {metas[role]}"), f"{meta}", ".records.meta")
        if isinstance(role, Primal):
            if role.index not in records.arguments.places:
                raise Unread(str(role), "an argument of a call", ".call.inputs")
        elif slots.tensors[role.index].meta is not meta:
            got = slots.tensors[role.index].meta
            raise Unread(Said(f"{role}, which is {got}"), f"{meta}", ".state")
        elif not _is_slot(places.get(role.index), slots, role.index):
            raise Unread(Said(f"another place of {role}"), "its place in the state", ".facts")
    for leaf in call.leaves:
        if isinstance(leaf, Primal) and leaf not in given:
            raise Unread(str(leaf), "an input", ".call.leaves")


def _is_slot(place: AccessPath | None, slots: Slots, number: int) -> bool:
    return (
        place is not None
        and place.argument is None
        and place.function is slots
        and place.path == slot(number)
    )


def _fits(plan: CountPlan) -> bool:
    """Whether the storages of a plan are numbers of its owners."""
    count = len(plan.owners)
    numbers = [number for step in plan.steps for number in (step.old, step.new)]
    return len(plan.rest) == len(plan.totals) == count and all(0 <= x < count for x in numbers)


def _hidden(cut: StageRecords) -> Iterator[int]:
    for role in cut.convention.inputs:
        if isinstance(role, Hidden):
            yield role.index
