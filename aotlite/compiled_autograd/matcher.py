"""Generated code that finds out whether a tape is of a known structure, and runs it if so.

What `look` asks of a tape, straight-line: one variable a node, one test for what its form says.
A tape that is one stretch is run by the same function, without looking at a node twice. Whatever
is not as expected gives MISS before anything has changed: then the general way is taken, which
knows other structures, and raises what eager raises. Rules: CAG-6, CAG-7, CAG-14.
Spec: `specs/compiled_autograd.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from sys import getrefcount
from typing import Any

import attrs

from aotlite.backends.values import is_read, travels_as_array
from aotlite.compiled_autograd.forms import CLOSED, form_of, is_number, is_plain, window_of
from aotlite.compiled_autograd.look import Look, signatures
from aotlite.compiled_autograd.running import Program, Tape
from aotlite.eager.autograd.leaf import AccumulateGrad
from aotlite.eager.autograd.node import LAST, SavedTensor
from aotlite.eager.autograd.single import collect
from aotlite.eager.autograd.tape import NO_RESULTS, OpNode
from aotlite.eager.state import STATE
from aotlite.eager.tensor import tensors_over
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import OPS
from aotlite.stages.s10_backward import CompiledBackward
from aotlite.stages.s10_source import Source, listed

MISS = object()
"""What a function gives for another tape."""
_ERRORS = (TypeError, ValueError, AttributeError, IndexError)
"""What taking apart a node of another form raises."""

Match = Callable[[Any, Any, bool, bool], Any]
"""From roots, sinks, `accumulate` and `retain` to what the backward gives; or to the nodes, where
more than one stretch is run; or to MISS."""


class Matcher:
    """The function of one program, and what it gives."""

    def __init__(self, tape: Tape, program: Program) -> None:
        writer = _Writer(tape, program)
        self.program = program
        self.look = attrs.evolve(tape.look, nodes=[], number={})
        """Without the nodes that were looked at."""
        self.is_typed = writer.is_typed
        """Whether it looks at classes of tensors: it need not where there are no wrappers."""
        self.runs = writer.is_whole
        """Whether it runs the tape, too."""
        self.match, self.source = writer.function(program.number)


class _Writer:
    def __init__(self, tape: Tape, program: Program) -> None:
        self.tape = tape
        self.look: Look = tape.look
        self.program = program
        self.source = Source()
        self.source.scope.update(MISS=MISS, STATE=STATE, ERRORS=_ERRORS)
        self.saved: dict[tuple[int, int], str] = {}
        """The variable of each value that a node has saved."""
        self.numbers: dict[Any, int] = dict(self.look.number)
        self.is_typed = STATE.wrappers
        self.is_whole = self._is_whole()
        self.read: set[tuple[int, int]] = set()
        """What the one stretch reads of what nodes have saved."""
        if self.is_whole:
            stretch: Any = program.first.stretch
            self.read = {p[1:] for p in stretch.places if p[0] == "saved"}

    def function(self, number: int) -> tuple[Match, str]:
        source = self.source
        known = "" if self.is_typed else "STATE.wrappers or "
        source.add(f"if {known}accumulate is not {self.tape.accumulate}:")
        source.add("    return MISS", "try:")
        start = len(source.lines)
        self._roots()
        for at in range(len(self.look.nodes)):
            self._node(at)
        self._order()
        if self.tape.sinks is not None:
            self._sinks()
        else:
            self._test("sinks is None")
        source.lines[start:] = [f"    {line}" for line in source.lines[start:]]
        source.add("except ERRORS:", "    return MISS")
        if self.is_whole:
            self._run()
        else:
            names = [f"n{k}" for k in range(len(self.look.nodes))]
            source.add(f"return [{', '.join(names)}]")
        return source.function("tape", f"tape {number}", "roots, sinks, accumulate, retain")

    def _test(self, test: str) -> None:
        self.source.add(f"if not ({test}):", "    return MISS")

    def _typed(self, name: str) -> str:
        """The test that a tensor is no wrapper, where there are such."""
        if not self.is_typed:
            return ""
        self.source.use(is_plain)
        return f" and is_plain({name})"

    # --- where it starts and ends
    def _roots(self) -> None:
        roots, source = self.tape.roots, self.source
        pairs = [f"(e{k}, g{k})" for k in range(len(roots))]
        source.add(f"{listed(pairs)} = roots")
        signature = source.constant(signatures([grad for _, grad in roots]), "S")
        if len(roots) == 1 and roots[0][1] is not None:
            meta = source.constant(roots[0][1].meta, "M", str(roots[0][1].meta))
            self._test(f"g0.meta is {meta}{self._typed('g0')}")
        else:
            source.use(signatures)
            grads = ", ".join([f"g{k}" for k in range(len(roots))])
            self._test(f"signatures([{grads}]) == {signature}")
        self.known: set[int] = set()
        for k, (edge, _) in enumerate(roots):
            if edge is None:
                self._test(f"e{k} is None")
            else:
                self._edge(f"e{k}", edge)

    def _edge(self, name: str, edge: Any) -> None:
        """An edge leads to the node that has its number; it is given one if it has none."""
        number, index = self.look.number[edge[0]], edge[1]
        if number in self.known:
            self.source.add(f"m, i = {name}")
            self._test(f"m is n{number} and i == {index}")
        else:
            self.known.add(number)
            self.source.add(f"n{number}, i = {name}")
            self._test(f"i == {index}")

    def _edges(self, at: int) -> None:
        """All edges of a node at once."""
        edges = self.look.nodes[at].edges
        if not edges:
            self._test(f"not n{at}.edges")
            return
        targets, tests = [], []
        for k, edge in enumerate(edges):
            if edge is None:
                targets.append(f"e{k}")
                tests.append(f"e{k} is None")
                continue
            number = self.look.number[edge[0]]
            if number in self.known:
                targets.append(f"(m{k}, i{k})")
                tests.append(f"m{k} is n{number}")
            else:
                self.known.add(number)
                targets.append(f"(n{number}, i{k})")
            tests.append(f"i{k} == {edge[1]}" if edge[1] else f"not i{k}")
        self.source.add(f"{listed(targets)} = n{at}.edges")
        self._test(" and ".join(tests))

    def _sinks(self) -> None:
        sinks, source = self.tape.sinks or (), self.source
        names = [f"s{k}" for k in range(len(sinks))]
        source.add(f"{listed(names)} = sinks")
        for name, sink in zip(names, sinks, strict=True):
            number = None if sink is None else self.look.number.get(sink[0])
            if sink is None:
                self._test(f"{name} is None")
            elif number is None:
                nodes = ", ".join([f"n{k}" for k in range(len(self.look.nodes))])
                self._test(f"{name}[0] not in {{{nodes}}} and {name}[1] == {sink[1]}")
            else:
                self._test(f"{name}[0] is n{number} and {name}[1] == {sink[1]}")

    def _order(self) -> None:
        """Nodes are who they are, and run in this order: the numbers of their making fall."""
        nodes, source = self.look.nodes, self.source
        inner = [k for k in self.program.order if nodes[k].sequence != LAST]
        if len(inner) > 1:
            falling = " > ".join([f"n{k}.sequence" for k in inner])
            self._test(falling)
        leaves = [f"n{k}" for k, node in enumerate(nodes) if node.sequence == LAST]
        if len(leaves) > 1:
            self._test(f"len({{{', '.join(leaves)}}}) == {len(leaves)}")
        source.scope["LAST"] = LAST

    # --- nodes
    def _node(self, at: int) -> None:
        node: Any = self.look.nodes[at]
        form = self.look.forms[at]
        kind = type(node)
        simple = form[0] != CLOSED and node.extra is None
        if simple and kind is OpNode:
            self._op(at, node)
        elif simple and kind is AccumulateGrad and len(form) == 3 and not node.edges:
            self._leaf(at, node, form)
        elif simple and kind is CompiledBackward:
            plan = self.source.constant(node.plan, "P", "a compiled backward")
            self._test(f"n{at}.plan is {plan} and n{at}.extra is None and n{at}.saved is not None")
            self.source.add(f"for s, v in n{at}.links:", "    if s.version != v:")
            self.source.add("        return MISS")
            self._edges(at)
        else:
            self.source.use(form_of)
            self._test(f"form_of(n{at}) == {self.source.constant(form, 'F', node.name())}")
            self._edges(at)

    def _op(self, at: int, node: Any) -> None:
        source, name = self.source, f"n{at}"
        plan = source.constant(node.plan, "P", node.name())
        key = source.constant(node.key, "K")
        tests = [f"{name}.plan is {plan}", f"({name}.key is {key} or {name}.key == {key})"]
        if not _says_the_result(node):
            result = source.constant(node.result, "M", str(node.result))
            same = "==" if type(node.result) is tuple else "is"
            tests.append(f"{name}.result {same} {result}")
        tests.append(f"{name}.extra is None")
        if not _is_of_one_op(node):
            tests.append(f"{name}.op is {source.constant(node.op, 'O', node.op.name)}")
        self._test(" and ".join(tests))
        self._edges(at)
        self._kept(at, node)

    def _kept(self, at: int, node: Any) -> None:
        """What a node has saved, as it was saved: a value that was written is another way's."""
        source, slots = self.source, _Slots(at)
        targets, tests = [], []
        for k, (position, value) in enumerate(zip(node.plan.reads, node.kept, strict=True)):
            if type(value) is SavedTensor:
                targets.append(slots.add(value))
            elif type(value) is list:
                targets.append(listed([slots.add(each) for each in value]))
            else:
                targets.append(f"v{k}")
                if is_number(node.op, position, value):
                    number = source.constant((type(value), repr(value)), "V", repr(value))
                    tests.append(f"(type(v{k}), repr(v{k})) == {number}")
        if slots.count or tests:
            source.add(f"{listed(targets)} = n{at}.kept")
        if node.saved_results:
            names = [slots.add(each) for each in node.saved_results.values()]
            source.add(f"{listed(names)} = n{at}.saved_results.values()")
        for slot, (name, record) in enumerate(slots.records):
            if self.is_whole and (at, slot) not in self.read:
                continue  # a stretch checks what it reads
            variable = f"t{at}_{slot}"
            source.add(f"{variable} = {name}.tensor")
            meta = source.constant(record.tensor.meta, "M", str(record.tensor.meta))
            tests.append(f"{variable}.meta is {meta}{self._typed(variable)}")
            tests.append(f"{variable}.storage.version == {name}.version")
            self.saved[at, slot] = variable
        if tests:
            self._test(" and ".join(tests))

    def _leaf(self, at: int, node: AccumulateGrad, form: Any) -> None:
        source, name = self.source, f"n{at}"
        meta = source.constant(form[1], "M", str(form[1]))
        collects = "" if form[2] else "not "
        source.add(f"l = {name}._leaf()")
        source.use(held_once)
        # A form_of in short: `edges` and `collected` are empty where nothing was done to the leaf.
        self._test(
            f"l.meta is {meta}{self._typed('l')} and {collects}(l._leaf or l._node is not None) "
            f"and not {name}.edges and not {name}.collected and {name}.extra is None "
            "and (l._grad is None or held_once(l))"
        )

    # --- running
    def _is_whole(self) -> bool:
        """Whether the function runs the tape: one stretch, in which values do nothing unusual."""
        first, nodes = self.program.first, self.look.nodes
        stretch = first.stretch
        if first.closed is not None or stretch is None or stretch.run is None or stretch.shared:
            return False
        edges = [edge for edge, _ in self.tape.roots]
        if len(set(edges)) != len(edges) or None in edges:
            return False
        plain = all(type(of) is int for _, of in stretch.leaves)
        plain = plain and all(of is Ellipsis or type(of) is int for of in stretch.collected)
        known = {OpNode, AccumulateGrad, CompiledBackward}
        simple = all(type(node) in known and not node.extra for node in nodes)
        return plain and simple

    def _run(self) -> None:
        source, stretch = self.source, self.program.first.stretch
        assert stretch is not None and stretch.graph is not None
        run: Any = stretch.run
        compact = hasattr(run, "compact")
        source.scope["run"] = run.compact if compact else run
        self.compact = compact
        pairs = zip(stretch.graph.placeholders, stretch.places, is_read(stretch.graph), strict=True)
        values = [
            self._value(node.meta, place) for node, place, read in pairs if read or not compact
        ]
        source.add(f"values = [{', '.join(values)}]")
        self._release(stretch)
        if compact:
            source.enter("found = enter(run, values)")
        else:
            source.add("found = run(values)")
        metas = [value.meta for value in stretch.graph.outputs]
        repeats, leaves = [], []
        seen: set[Any] = set()
        for number, of in stretch.leaves:
            if (
                of in seen
            ):  # one gradient of several leaves: they share a storage, and so are copied
                repeats.append(of)
                of = len(metas) + len(repeats) - 1
            seen.add(of)
            leaves.append((number, of))
        if repeats:
            again = ", ".join([f"found[{of}]" for of in repeats])
            source.add(f"found = [*found, {again}]")
            metas += [metas[of] for of in repeats]
        source.use(tensors_over, collect)
        source.add(f"found = tensors_over(found, {source.constant(metas, 'R', 'metas')})")
        self._deliver(stretch, leaves)

    def _value(self, meta: Any, place: Any) -> str:
        source = self.source
        if place[0] == "at":
            edges = [edge and (self.look.number[edge[0]], edge[1]) for edge, _ in self.tape.roots]
            name = f"g{edges.index((place[1], place[2]))}"
        elif type(self.look.nodes[place[1]]) is CompiledBackward:
            return self._compiled_value(meta, place)
        else:
            name = self.saved[place[1], place[2]]
        if not (self.compact and travels_as_array(meta)):
            return f"({name}.storage.buffer, {name}.offset)"
        source.add(f"x{name} = {name}._array", f"if x{name} is None:")
        source.add(f"    x{name} = {name}.array")
        return f"x{name}"

    def _compiled_value(self, meta: Any, place: Any) -> str:
        """What a compiled call has saved: an array, or a window, as its own backward takes it."""
        source = self.source
        node: Any = self.look.nodes[place[1]]
        value = f"n{place[1]}.saved[{place[2]}]"
        if not (self.compact and travels_as_array(meta)):
            source.use(window_of)
            return f"window_of({value})"
        if node.plan.is_compact:
            return value
        source.use(array_of)
        return f"array_of({value}, {source.constant(meta, 'M', str(meta))})"

    def _release(self, stretch: Any) -> None:
        """What was saved is let go of, as by each node that has run."""
        nodes, lines = self.look.nodes, []
        ops = [k for k, _ in stretch.kept if type(nodes[k]) is OpNode]
        for k in range(0, len(ops), 16):
            lines.append(" = ".join([f"n{n}.kept" for n in ops[k : k + 16]]) + " = None")
        results = [n for n in ops if nodes[n].saved_results]
        if results:
            empty = self.source.constant(NO_RESULTS, "N", "nothing")
            for k in range(0, len(results), 16):
                chain = [f"n{n}.saved_results" for n in results[k : k + 16]]
                lines.append(" = ".join(chain) + f" = {empty}")
        lines += [f"n{k}.release()" for k, _ in stretch.kept if type(nodes[k]) is not OpNode]
        if lines:
            self.source.add("if not retain:", *[f"    {line}" for line in lines])

    def _deliver(self, stretch: Any, leaves: list[tuple[int, int]]) -> None:
        source = self.source
        if leaves:  # `collect` takes the last one first
            reverse = leaves[::-1]
            numbers = [of for _, of in reverse]
            names = [f"n{number}" for number, _ in reverse]
            if numbers == list(range(len(numbers))) and not self.tape.sinks:
                source.add("given, found = found, None")
            else:
                source.add(f"given = [{', '.join([f'found[{of}]' for of in numbers])}]")
            if not self.tape.sinks:
                source.add("found = None")
            source.add(f"collect(given, [{', '.join(names)}])")
        if self.tape.sinks is None:
            source.add("return []")
            return
        values = ["None" if of is Ellipsis else f"found[{of}]" for of in stretch.collected]
        source.add(f"return [{', '.join(values)}]")


class _Slots:
    """Names of a node's records, in the order of `records_of`."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.records: list[tuple[str, SavedTensor]] = []

    @property
    def count(self) -> int:
        return len(self.records)

    def add(self, record: SavedTensor) -> str:
        name = f"r{self.at}_{len(self.records)}"
        self.records.append((name, record))
        return name


def array_of(window: Any, meta: TensorMeta) -> Any:
    """The array over a window."""
    buffer, start = window
    return meta.device.arrays.strided(buffer, meta.dtype, meta.shape, meta.stride, start)


def held_once(leaf: Any) -> bool:
    """Whether nothing but the leaf has its `.grad`: what the tape has saved is other memory."""
    return getrefcount(leaf._grad) <= 2 and getrefcount(leaf._grad.storage) <= 2


def _says_the_result(node: OpNode) -> bool:
    """Whether the key says what the result is, also if it was written to the first operand."""
    results: Any = getattr(node.op, "results", {})
    return node.key[0] is node.result and results.get(node.key) is node.result


def _is_of_one_op(node: OpNode) -> bool:
    """Whether its gradient formulas, hence its plan, are of no other op."""
    op: Any = node.op
    found = _OPS_OF.get(id(op.vjp))
    if found is None:
        _OPS_OF.clear()
        for each in OPS.values():
            vjp = getattr(each, "vjp", None)
            _OPS_OF[id(vjp)] = _OPS_OF.get(id(vjp), 0) + 1
        found = _OPS_OF.get(id(op.vjp), 2)
    return found == 1


_OPS_OF: dict[int, int] = {}
"""How many ops have these formulas, by their id."""


def look_again(nodes: Sequence[Any], look: Look) -> Look:
    """A look at other nodes of the same structure."""
    number = {node: k for k, node in enumerate(nodes)}
    return Look(list(nodes), number, list(look.forms), look.key)
