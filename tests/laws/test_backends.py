"""The laws of backends hold for ours, and each rejects the wrong one that is meant for it."""

from importlib import import_module

import numpy as np
import pytest

import aotlite as al
from aotlite.backends.native.compiler.toolchain import find_compiler
from aotlite.backends.reference import REFERENCE, ReferenceBackend
from aotlite.compilers import nop
from aotlite.ir.op import OPS, PureOp, ViewOp
from aotlite.ir.run.transform import Transformer
from aotlite.testing import laws
from aotlite.testing.laws.ops.table import WITHOUT_SAMPLES
from tests.samples import samples_of

EVERY = tuple(law.name for law in laws.BACKEND_LAWS)


def subset():
    """Graphs that show each law, and few enough for many backends."""
    wanted = (
        *("written of", "returned of", "layer of transposed", "with_constant", "wide"),
        "reordered of 2",
    )
    stages = laws.graphs("forward", "backward", "closing")
    return [case for case in stages if case.name.startswith(wanted)]


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    "own",
    ["reference", ReferenceBackend(interpreted_calls=0), nop],
    ids=["reference", "straight", "nop"],
)
def test_right_backends_obey_every_law(own):
    found = laws.check_backend(own)
    assert (EVERY, 86, ()) == (found.laws, found.cases, found.refused)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", ["tanh", "matmul", "sort", "select", "index_add", "sum"])
def test_the_reference_obeys_the_laws_on_graphs_of_single_ops(name):
    samples = None if name not in ("select",) else [laws.Sample((np.ones((2, 3)), 0, 1))]
    found = laws.check_backend("reference", laws.graphs_of(name, samples)[:12])
    assert EVERY[:-1] == found.laws


@pytest.mark.long
@pytest.mark.parametrize("name", [n for n, op in OPS.items() if isinstance(op, (PureOp, ViewOp))])
def test_the_reference_obeys_the_laws_on_graphs_of_every_op(name):
    if name in WITHOUT_SAMPLES:
        return
    cases = laws.graphs_of(name, samples_of(name)[:30])
    for backend in ("reference", ReferenceBackend(interpreted_calls=0)):
        found = laws.check_backend(backend, cases)
        assert (len(cases), ()) == (found.cases, found.refused)


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "own",
    [
        "loops",
        pytest.param("cpu", marks=pytest.mark.skipif(not find_compiler(), reason="no compiler")),
    ],
)
def test_backends_that_fuse_obey_every_law_up_to_rounding(own, every, monkeypatch):
    cases = laws.graphs("forward", "backward", "closing")[::every]
    module = import_module("aotlite.testing.laws.graphs.backends")
    monkeypatch.setattr(module, "_default_cases", lambda: cases)
    found = laws.check_backend(own, tolerance=1e-5)
    assert (EVERY, ()) == (found.laws, found.refused)
    assert len(cases) <= found.cases <= 86
    assert found.cases == 86 or every > 1


@pytest.mark.parametrize(
    ("factor", "tolerance", "fails"),
    [(1 + 2**-20, 1e-5, False), (1 + 2**-20, 0.0, True), (1.001, 1e-5, True)],
)
def test_a_tolerance_is_for_rounding_alone(factor, tolerance, fails):
    def around(graph, run):
        return lambda windows: [r and (r[0] * r[0].dtype.type(factor), r[1]) for r in run(windows)]

    cases = laws.graphs_of("exp", [laws.Sample((np.array([0.5, 1, 2]),))])
    own = Around("inexact", around)
    if fails:
        with pytest.raises(laws.LawError, match="B3"):
            laws.check_backend(own, cases, tolerance=tolerance)
    else:
        laws.check_backend(own, cases, tolerance=tolerance)


def test_a_tolerance_is_not_for_integers():
    def around(graph, run):
        return lambda windows: [r and (r[0] + 1, r[1]) for r in run(windows)]

    cases = laws.graphs_of("add", [laws.Sample((np.array([10**9]), np.array([2])))])
    with pytest.raises(laws.LawError, match="B3"):
        laws.check_backend(Around("one off", around), cases, tolerance=1e-5)


class Around:
    """The reference backend with something wrong around it."""

    def __init__(self, name, wrong):
        self.name = name
        self.wrong = wrong

    def compile(self, graph):
        run = REFERENCE.compile(graph)
        return self.wrong(graph, run)


def wrong(law, text):
    """A decorator: a wrong backend, the law meant for it, and a part of what it says."""

    def note(function):
        WRONG.append((Around(function.__name__, function), law, text))
        return function

    return note


WRONG: list[tuple[Around, str, str]] = []


@wrong("B1", "expected a callable")
def gives_nothing(graph, run):
    return None


@wrong("B1", "KeyError")
def knows_no_constants(graph, run):
    if graph.constants:
        raise KeyError("constant")
    return run


@wrong("B1", "it changes the graph that it is given")
def tags_nodes(graph, run):
    for node in graph.nodes:
        node.recompute = True
    return run


@wrong("B2", "expected a list of")
def drops_a_result(graph, run):
    return lambda windows: run(windows)[:-1]


@wrong("B2", "expected (buffer, start)")
def gives_arrays(graph, run):
    return lambda windows: [r and r[0] for r in run(windows)]


@wrong("B2", "expected a window inside its buffer")
def starts_late(graph, run):
    return lambda windows: [r and (r[0], r[1] + 1) for r in run(windows)]


@wrong("B3", "expected float32")
def computes_in_half(graph, run):
    def call(windows):
        return [r and (r[0] * r[0].dtype.type(3), r[1]) for r in run(windows)]

    return call


@wrong("B3", "expected float32")
def is_wrong_from_the_third_call_on(graph, run):
    calls = []

    def call(windows):
        calls.append(0)
        scale = 2 if len(calls) > 2 else 1
        return [r and (r[0] * r[0].dtype.type(scale), r[1]) for r in run(windows)]

    return call


def through(dtype, kind):
    """Rounds what it is given, and what it gives, to numbers of a dtype."""

    def rounded(window):
        if window is None or window[0].dtype.kind != kind:
            return window
        return window[0].astype(dtype).astype(window[0].dtype), window[1]

    return lambda windows: list(map(rounded, windows))


@wrong("B3", "expected float64")
def computes_in_single(graph, run):
    narrow = through("float32", "f")
    return run if closes(graph) else lambda windows: narrow(run(narrow(windows)))


@wrong("B3", "expected int64")
def computes_integers_in_floats(graph, run):
    narrow = through("float64", "i")
    return run if closes(graph) else lambda windows: narrow(run(narrow(windows)))


@wrong("B3", "nan")
def knows_no_nan(graph, run):
    def cleared(window):
        return (np.nan_to_num(window[0]), window[1]) if window[0].dtype.kind == "f" else window

    return run if closes(graph) else lambda windows: run(list(map(cleared, windows)))


@wrong("B4", "afterwards is")
def uses_an_input_as_scratch(graph, run):
    def call(windows):
        buffers = [window[0] for window in windows]
        results = run([(b.copy(), s) for b, s in windows] if not closes(graph) else windows)
        for buffer in buffers:
            if not any(r and np.may_share_memory(r[0], buffer) for r in results):
                buffer += buffer.dtype.type(1)
        return results

    return call


def closes(graph):
    return any(node.target.name == "copy_" for node in graph.calls)


class DropsClones(Transformer):
    def call(self, target, args):
        return args[0] if target.name == "clone" else super().call(target, args)


@wrong("B5", "shares memory with input")
def returns_inputs(graph, run):
    fresh = [node for node in graph.outputs if getattr(node, "op", "") == "call"]
    same = all(node.meta == node.args[0].meta for node in fresh if node.target.name == "clone")
    return REFERENCE.compile(DropsClones(graph).transform()) if same else run


@wrong("B6", "after another call is")
def gives_one_buffer(graph, run):
    kept = {}

    def call(windows):
        results = run(windows)
        inputs = [window[0] for window in windows]
        return [_into(kept, k, r, inputs) for k, r in enumerate(results)]

    return call


def _into(kept, k, result, inputs):
    if result is None or any(np.may_share_memory(result[0], each) for each in inputs):
        return result
    buffer = kept.setdefault(k, result[0].copy())
    buffer[...] = result[0]
    return buffer, result[1]


COMPILED: list[object] = []


@wrong("B7", "expected float32")
def differs_from_one_compilation_to_the_next(graph, run):
    """The laws before compile once each, six times in all; the law itself does it twice."""
    COMPILED.append(graph)
    odd = COMPILED.count(graph) == 8
    scale = 2 if odd else 1
    return lambda windows: [r and (r[0] * r[0].dtype.type(scale), r[1]) for r in run(windows)]


@wrong("B8", "RuntimeError")
def takes_one_call_at_a_time(graph, run):
    import time

    busy = []

    def call(windows):
        if busy:
            raise RuntimeError("a call is in flight")
        busy.append(0)
        try:
            time.sleep(0.001)
            return run(windows)
        finally:
            busy.clear()

    return call


@wrong("B9", "it keeps memory of a call that is over")
def remembers_its_inputs(graph, run):
    seen = []

    def call(windows):
        seen[:] = [window[0] for window in windows]
        return run(windows)

    return call


@wrong("B10", "of inputs inside of buffers is")
def ignores_starts(graph, run):
    return lambda windows: run([(buffer, 0) for buffer, _ in windows])


@wrong("B11", "it raises RuntimeError('failed'), expected")
def hides_errors(graph, run):
    def call(windows):
        try:
            return run(windows)
        except Exception:
            raise RuntimeError("failed") from None

    return call


@pytest.mark.parametrize(("own", "law", "text"), WRONG, ids=lambda v: getattr(v, "name", v))
def test_a_wrong_backend_is_rejected_by_the_law_that_is_meant_for_it(own, law, text):
    COMPILED.clear()
    with pytest.raises(laws.LawError) as caught:
        laws.check_backend(own, None if law == "B11" else subset())
    assert (law, True) == (caught.value.law, text in caught.value.report), caught.value.report
    assert f": backend {own.name!r} on " in str(caught.value)


def test_every_law_of_backends_has_a_wrong_one():
    assert set(EVERY) == {law for _, law, _ in WRONG}


def test_graphs_that_a_backend_refuses_are_counted():
    def no_views(graph):
        if any(node.target.name in ("t", "view", "transpose") for node in graph.calls):
            raise al.UnsupportedError("no_views: it has views, expected none")
        return graph

    found = laws.check_backend(no_views, subset())
    assert 0 < len(found.refused) < len(subset())
    assert len(subset()) == found.cases + len(found.refused)
    assert f"it refuses {len(found.refused)} more" in str(found)


def test_a_backend_that_refuses_all_is_not_said_to_obey():
    def shy(graph):
        raise al.UnsupportedError("shy: no")

    with pytest.raises(al.ArgumentError) as caught:
        laws.check_backend(shy)
    assert "laws: backend 'shy' refuses all of 84 graphs, expected it to take one" == str(
        caught.value
    )
