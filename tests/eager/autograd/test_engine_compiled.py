"""Random programs of own functions, hooks and writes give the same compiled as in eager.

Rules GEN-1, TEN-30, TEN-41, META-8.
"""

from collections import Counter

from hypothesis import given, settings

import aotlite as al
from tests.eager.helpers.both import values
from tests.eager.helpers.engine_programs import World, eager_only, inside, programs

REFUSED = (al.UnsupportedError, al.AliasError)


def world(program, *, compiled):
    """Results, what became of the inputs, and the gradients of the leaves behind them."""
    leaves = [
        al.tensor([float(k + i) for i in range(4)], dtype=al.float64, requires_grad=True)
        for k in (1, -2, 3)
    ]
    inputs = [leaves[0] * 1, leaves[1] * 1, leaves[2].detach() * 1]
    found = World()
    body = inside(program)
    phase = 0
    try:
        out = (al.compile(body) if compiled else body)(*inputs)
        found.things += values(out)
        phase = 1
        if out.requires_grad:
            out.backward(al.tensor([1.0, 2.0, -1.0, 3.0], dtype=al.float64)[: out.shape[0]])
    except al.AotliteError as error:
        found.raised = phase, type(error), error
    if found.raised is None or phase:
        found.things += [(values(t), t.version, t.requires_grad) for t in inputs]
        found.things += values(*[leaf.grad for leaf in leaves])
    return found


def test_a_random_program_gives_the_same_compiled():
    seen = Counter()

    @settings(max_examples=80, derandomize=True, database=None)
    @given(programs.filter(lambda program: not eager_only(program)))
    def check(program):
        eager, compiled = world(program, compiled=False), world(program, compiled=True)
        seen["all"] += 1
        if compiled.raised is not None and isinstance(compiled.raised[2], REFUSED):
            assert 0 == compiled.raised[0], compiled.raised
            seen["refused"] += eager.raised is None
            return
        first, second = [w.raised and w.raised[:2] for w in (eager, compiled)]
        assert first == second, f"{program}\n{eager.raised}\n{compiled.raised}"
        assert eager.things == compiled.things, f"{program}\n{eager}\n{compiled}"
        seen["with gradients"] += any(each is not None for each in eager.things[-3:])

    check()
    assert seen["refused"] <= 0.3 * seen["all"], seen
    assert seen["with gradients"] >= 0.3 * seen["all"], seen
