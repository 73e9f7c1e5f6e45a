"""LOG-5: calls are events on request, and cost nothing otherwise."""

import dis
import threading
from collections import Counter

import pytest

import aotlite as al
from aotlite.api import CompiledFunction
from aotlite.backends.calling_convention import Run
from aotlite.pipeline.logs import call_events
from aotlite.stages.s10_runtime.backward.node import CompiledBackward
from tests.rules.helpers.logs import logged, records, unnested

METHODS = [
    (CompiledFunction, "__call__"),
    (CompiledBackward, "gradients"),
    (CompiledBackward, "_differentiable"),
    (al.compiled_autograd.CompiledAutograd, "run"),
]
PARTS = ("prologue", "run", "epilogue")


def loss(x, w):
    x[0].mul_(2.0)
    return (x @ w).exp().sum()


def arguments(rows=4):
    return al.ones(rows, 3), al.ones(3, 2).requires_grad_()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.jsonl"


def classes(cls=Run):
    return [cls, *[each for sub in cls.__subclasses__() for each in classes(sub)]]


def state():
    """The functions that a call goes through: of classes, and whether runs are watched."""
    return [cls.__dict__[name] for cls, name in METHODS] + [
        cls.__dict__.get("call") for cls in classes()
    ]


# --------------------------------------------------------------------------------- no cost when off
@pytest.mark.rules("LOG-5")
def test_all_functions_of_a_call_are_the_same_objects_afterwards(path):
    before = state()
    assert "call" not in Run.__dict__
    with logged(trace=path, calls=True):
        assert all(now is not then for now, then in zip(state(), before[:5], strict=False))
        with al.inspect.chrome_trace(path.with_name("chrome.json")):
            pass
        assert "call" in Run.__dict__
    for now, then in zip(state(), before, strict=True):
        assert now is then


@pytest.mark.rules("LOG-5")
@pytest.mark.parametrize("options", [{"dynamic": False}, {"dynamic": True}])
def test_generated_code_has_the_same_instructions_with_logs_and_calls(path, options):
    def made():
        compiled = al.compile(loss, backend="reference", **options)
        for rows in (4, 5):
            compiled(*arguments(rows)).backward()
        functions = [each.guarded.call for each in compiled.entries]
        return [
            [(each.opname, each.argrepr) for each in dis.get_instructions(function)]
            for function in functions
        ], [each.guarded.source for each in compiled.entries]

    plain = made()
    with logged(all="debug", trace=path, calls=True):
        watched = made()
    assert plain == watched
    names = {name for code in plain[0] for _, name in code}
    assert not any("log" in name or "trace" in name or "emit" in name for name in names)


# ------------------------------------------------------------------------------------- the events
@pytest.mark.rules("LOG-5", "GEN-9")
@pytest.mark.parametrize("backend", ["reference", "auto"])
def test_a_call_has_a_prologue_a_run_and_an_epilogue(path, backend):
    compiled = al.compile(loss, backend=backend, dynamic=False)
    compiled(*arguments()).backward()
    with logged(trace=path, calls=True):
        compiled(*arguments()).backward()
    found = [each for each in records(path) if each["event"] != "trace"]
    number = str(compiled.entries[0].number)
    assert {number} == {each["compile_id"] for each in found}
    events = [each["event"] for each in found]
    assert ["prologue", "run", "epilogue", "call"] == events[:4]
    assert ["prologue", "run", "epilogue", "backward_call"] == events[4:]
    assert ["loss_forward", "loss_backward"] == [each["graph"] for each in found if "graph" in each]
    for parts in (found[:4], found[4:]):
        *inner, whole = parts
        ends = [each["time"] + round(each["seconds"] * 1e9) for each in inner]
        assert whole["time"] == inner[0]["time"]
        assert [each["time"] for each in inner[1:]] == ends[:2]
        assert ends[-1] == whole["time"] + round(whole["seconds"] * 1e9)


@pytest.mark.rules("LOG-5")
def test_calls_of_regions_name_their_instance(path):
    compiled = al.compile(loss, dynamic=True)
    for rows in (4, 5, 6):
        compiled(*arguments(rows)).backward()
    with logged(trace=path, calls=True):
        for rows in (5, 6):
            compiled(*arguments(rows)).backward()
    found = records(path)
    assert Counter(call=2, backward_call=2, prologue=4, run=4, epilogue=4, trace=1) == Counter(
        each["event"] for each in found
    )
    number = str(compiled.entries[0].number)
    assert {number} == {each["compile_id"].partition(".")[0] for each in found[1:]}


@pytest.mark.rules("LOG-5")
def test_a_call_that_compiles_holds_its_compilation(path):
    with logged(trace=path, calls=True):
        compiled = al.compile(loss, backend="reference")
        compiled(*arguments()).backward()
    found = [each for each in records(path) if "seconds" in each]
    spans = [(each["time"], each["time"] + round(each["seconds"] * 1e9)) for each in found]
    assert [] == unnested(spans)
    (call,), (compilation,) = (
        [each for each in found if each["event"] == name] for name in ("call", "compile")
    )
    assert call["time"] <= compilation["time"]
    assert compilation["seconds"] < call["seconds"]


@pytest.mark.rules("LOG-5")
def test_runs_of_a_compilation_are_no_part_of_the_call_that_compiles(path):
    """A size that depends on values is computed while the function is compiled."""
    with logged(trace=path, calls=True):
        compiled = al.compile(lambda x: (x[x > 0] * 2).sum(), backend="reference")
        for numbers in ([1.0, -1.0, 2.0], [1.0, 2.0, 3.0], [-1.0, 2.0]):
            compiled(al.tensor(numbers))
    found = [each for each in records(path) if "seconds" in each]
    spans = [(each["time"], each["time"] + round(each["seconds"] * 1e9)) for each in found]
    assert [] == unnested(spans)
    assert 3 == sum(each["event"] == "call" for each in found)


@pytest.mark.rules("LOG-5")
def test_an_error_of_a_call_is_in_its_event(path):
    compiled = al.compile(lambda x, i: x.index_select(0, i), backend="reference")
    compiled(al.ones(3), al.tensor([0, 1]))
    with logged(trace=path, calls=True), pytest.raises(al.IndexOutOfRangeError):
        compiled(al.ones(3), al.tensor([0, 7]))
    (call,) = [each for each in records(path) if each["event"] == "call"]
    assert call["error"].startswith("IndexOutOfRangeError: ")
    assert [] == call_events._THREAD.calls


@pytest.mark.rules("LOG-5")
def test_double_backwards_and_tapes_are_events(path):
    compiled = al.compile(lambda x: (x**3).sum(), backend="reference")
    x = al.ones(2, requires_grad=True)
    tapes = al.compiled_autograd.CompiledAutograd.of("reference")
    w = al.ones(3, requires_grad=True)
    with logged(trace=path, calls=True):
        (grad,) = al.autograd.grad(compiled(x), [x], create_graph=True)
        grad.sum().backward()
        with al.compiled_autograd.enable(tapes):
            (w * w).sum().backward()
    assert [6.0, 6.0] == x.grad.tolist()
    assert [2.0, 2.0, 2.0] == w.grad.tolist()
    events = Counter(each["event"] for each in records(path))
    assert 2 == events["backward_call"]
    assert 1 == events["tape_call"] == events["tape"]


@pytest.mark.rules("LOG-5")
def test_calls_of_several_threads_are_told_apart(path):
    compiled = al.compile(loss, backend="reference")
    compiled(*arguments())

    together = threading.Barrier(3)  # or one may get the id of another that has ended

    def work():
        together.wait()
        for _ in range(20):
            compiled(*arguments())
        together.wait()

    with logged(trace=path, calls=True):
        threads = [threading.Thread(target=work) for _ in range(3)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    found = [each for each in records(path) if each["event"] != "trace"]
    for thread in {each["thread"] for each in found}:
        events = [each["event"] for each in found if each["thread"] == thread]
        assert events == [*PARTS, "call"] * 20
    assert 60 == sum(each["event"] == "call" for each in found)


@pytest.mark.rules("LOG-5")
def test_classes_that_are_made_while_calls_are_watched_are_watched(path):
    class Late(CompiledFunction):
        def __call__(self, *args, **kwargs):
            return super().__call__(*args, **kwargs)

    own = Late.__dict__["__call__"]
    with logged(trace=path, calls=True):

        class Later(CompiledFunction):
            def __call__(self, *args, **kwargs):
                return super().__call__(*args, **kwargs)

        assert Late.__dict__["__call__"] is not own
        assert Later.__dict__["__call__"].__wrapped__
    assert Late.__dict__["__call__"] is own
    assert not hasattr(Later.__dict__["__call__"], "__wrapped__")
    for cls in (Late, Later):
        del call_events._STARTS[cls, "__call__"]
