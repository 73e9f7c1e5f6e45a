"""Records a segment with symbolic sizes (CAG-5).

Op nodes run as copies whose calls, arguments and saved values have symbolic metas, on fakes of the
arrived gradients. The recording holds for all sizes that satisfy the assumptions in the symbol
table's log. Spec: `specs/compiled_autograd.md`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from aotlite.compiled_autograd.dynamic.sizes import Symbols, with_items
from aotlite.compiled_autograd.node_signatures import Form, is_number
from aotlite.compiled_autograd.recorder import Closed, TapeRecorder
from aotlite.compiled_autograd.segment import RecordingRun, SegmentRecording
from aotlite.compiled_autograd.segment_recording import SegmentRecorder
from aotlite.eager.autograd.nodes.accumulate_grad import AccumulateGrad
from aotlite.eager.autograd.nodes.op_nodes import OpCall, OpNode, SliceAssign
from aotlite.eager.autograd.nodes.saved_tensors import SavedTensor
from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tape.node import TapeNode
from aotlite.eager.base.tape.view_chain import ViewChain, ViewStep, chain_of
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.geometry.sizes import same_shape
from aotlite.ir.graph import Graph
from aotlite.ir.graph.symbolic.numbers import at_sizes
from aotlite.ir.meta import TensorMeta, table_in
from aotlite.ir.symbols.assumption import Answer, concrete
from aotlite.ir.symbols.symint import RELATIONS, SymBool
from aotlite.stages.s10_runtime.backward.node import CompiledBackward


class Unsymbolic(Exception):
    """Raised if a segment cannot be recorded with symbolic sizes."""


def record_with(run: RecordingRun, symbols: Symbols, forms: Mapping[int, Form]) -> SegmentRecording:
    """The recording of these nodes, with the items of `symbols` in their forms.

    The gradients in flight are restored. Raises Unsymbolic if some node needs a size as a number.
    """
    items = iter(symbols.items)
    symbolic = {k: with_items(form, lambda _: next(items)) for k, form in forms.items()}
    recorded = _Symbolic(run, items, symbolic)
    number = None
    try:
        for number in forms:
            recorded.step(number)
        return recorded.recording()
    except (Closed, Exception) as error:  # of any kind: what is asked of a number, say
        what = str(error) or type(error).__name__
        raise Unsymbolic(f"NodeCall {number} takes no symbols for sizes: {what}") from error
    finally:
        recorded.give_up()


class _Symbolic(SegmentRecorder):
    """A recording with symbolic sizes."""

    def __init__(self, run: RecordingRun, arrivals: Iterator[TensorMeta], forms: dict[int, Form]):
        super().__init__(run)
        self.begin(_Recorder(self.place_of, forms))
        self.stands: dict[int, Tensor] = {}
        """The symbolic fakes of arrived gradients, by the gradients' ids."""
        for grad in run.on_their_way():
            if grad is not None:
                self._put_stand(grad, next(arrivals))
        stand = self._stand_for
        run.gradients = {node: list(map(stand, grads)) for node, grads in self.before.items()}
        run.collected = list(map(stand, self.collected))
        self.starting = list(run.collected)

    def _put_stand(self, grad: Tensor, meta: TensorMeta) -> None:
        if id(grad) not in self.stands:
            made = self.stands[id(grad)] = Tensor(Storage(None, capture=self), meta)
            self.places[id(made)] = self.places[id(grad)]

    def _stand_for(self, grad: Tensor | None) -> Tensor | None:
        return None if grad is None else self.stands[id(grad)]


class _Recorder(TapeRecorder):
    """A tape recorder that runs nodes by their symbolic forms."""

    def __init__(self, place_of: Callable[[Tensor], Any], forms: Mapping[int, Form]) -> None:
        super().__init__(place_of)
        self.forms = forms
        self._calls: dict[object, OpCall] = {}

    def run(
        self,
        node: TapeNode,
        number: int,
        grads: list[Any],
        wanted: Sequence[bool] | None,
        form: Form,
        run: Callable[[TapeNode], Any],
    ) -> Any:
        form = self.forms[number]
        if type(node) is CompiledBackward:
            if form[0] is CompiledBackward and len(form) > 2:
                self._number, self.marker.scope = number, self.scope_of(node, number)
                return self._pasted(node, number, grads, self._of_region(form))
            if table_in([grad.meta for grad in grads if grad is not None]) is not None:
                raise Unsymbolic("a compiled function has sizes of its own")
        elif type(node) is AccumulateGrad:
            if form[1] is not None and type(form[2]) is bool:
                self._number = number
                return self._collected(grads[0], form)
            node = _passing(node, form)
        else:
            node = self._symbolic(node, form)
        return super().run(node, number, grads, wanted, form, run)

    def _of_region(self, form: Form) -> Graph:
        """The backward graph of a region, with symbols of this recording for its own. What the
        region has assumed of its symbols is assumed of these."""
        _, kernels, names, sizes, _ = form
        values = {name: meta.shape[0] for name, meta in zip(names, sizes, strict=True)}
        rooms = [(values[name], room) for name, room in kernels.sizes.rooms.items()]
        fits = [least is None or value >= least for value, (least, _) in rooms]
        fits += [most is None or value <= most for value, (_, most) in rooms]
        facts = [guard.fact for guard in kernels.sizes.table.log]
        if not all([*fits, *[_holds(fact, values) for fact in facts]]):
            raise Unsymbolic("a compiled function has guards that exclude these sizes")
        return at_sizes(kernels.graph, values)

    def _collected(self, grad: Tensor | None, form: Form) -> tuple[()]:
        _, leaf, collects = form
        if grad is not None and collects:
            if grad.meta.dtype is not leaf.dtype or not same_shape(grad.meta.shape, leaf.shape):
                raise Unsymbolic(f"the gradient is {grad.meta}, and the leaf {leaf}")
            self.pending.append((self._number, grad))
        return ()

    def _symbolic(self, node: Any, form: Form) -> Any:
        """A copy of the node with symbolic metas."""
        if type(node) is SliceAssign:
            _, written, chain, root, _ = form
            write = copy.copy(node)
            write.written = self._symbolic(node.written, written)
            write.chain, write.root_meta = _chain_of(chain), root
            return write
        op, plan, key, result, saved = form
        call = self._calls.get((op, plan, key, result))
        if call is None:
            call = self._calls[op, plan, key, result] = OpCall(op, plan, key, result)
        twin = OpNode(call, (), node.edges)
        metas, ints, key = _metas(saved), _ints(saved), list(key)
        for position, value in zip(plan.reads, node.kept, strict=True):
            if type(value) is int and is_number(op, position, value):
                key[position] = next(ints)
        values = zip(plan.reads, node.kept, strict=True)
        twin.kept = tuple([_kept(value, key[position], metas) for position, value in values])
        twin.saved_results = {k: _stand_in(next(metas)) for k in node.saved_results}
        return twin


def _holds(fact: SymBool | Answer, values: Mapping[str, int]) -> object:
    """The truth of a fact about other symbols, for these sizes in their place."""
    if isinstance(fact, Answer):
        operands = concrete(fact.operands, values)
        table = table_in(operands)
        ask = fact.function if table is None else partial(table.ask, fact.function)
        return ask(*operands) == fact.value
    return RELATIONS[fact.relation](*concrete((fact.left, fact.right), values))


def _kept(value: object, now: object, metas: Iterator[TensorMeta]) -> Any:
    """A saved argument with symbolic metas; a plain argument from the symbolic key."""
    if type(value) is SavedTensor:
        return _stand_in(next(metas))
    if type(value) is list:
        return [_stand_in(next(metas)) for _ in value]
    return value if table_in((now,)) is None else now


def _metas(saved: Any) -> Iterator[TensorMeta]:
    """The metas of saved values in a form, in the order of `records_of`."""
    for each in saved:
        if type(each) is TensorMeta:
            yield each
        elif type(each) is tuple:
            yield from _metas(each)


def _ints(saved: Any) -> Iterator[object]:
    """The ints in a form that stand for tensors, in order: `is_number`."""
    return iter([each[1] for each in saved if type(each) is tuple and each[:1] == (int,)])


def _stand_in(meta: TensorMeta) -> SavedTensor:
    return SavedTensor(Tensor(Storage(None), meta))


def _passing(node: AccumulateGrad, form: Form) -> AccumulateGrad:
    """The node of a leaf whose geometry changed, which passes its gradient on."""
    leaf = node.leaf
    if leaf is None or form[1] is None:
        return node
    if not form[2]:
        raise Unsymbolic("a leaf passes its gradient on as it is")
    made = AccumulateGrad(leaf)
    made.chain, made.edges = _chain_of(form[2]), node.edges
    return made


def _chain_of(steps: Any) -> ViewChain:
    results = [op.result_for((meta, *args))[0] for op, args, meta in steps]
    pairs = zip(steps, results, strict=True)
    return chain_of(*[ViewStep(op, args, meta, result) for (op, args, meta), result in pairs])
