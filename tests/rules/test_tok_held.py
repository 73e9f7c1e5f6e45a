"""What an effect reaches besides its operands: never another result than eager's, else an error."""

from __future__ import annotations

from typing import Any

import pytest

import aotlite as al
from aotlite.subclasses import TwoTensor

BACKENDS = ("reference", "loops", "cpu")
WRITTEN = "a tensor that the compiled function reads was written while it ran, expected effects"


class World:
    """Tensors that a function takes or finds, and what a callback of it does to them."""

    def __init__(self) -> None:
        self.x: Any = al.tensor([1.0, 2.0, 3.0]).requires_grad_()
        self.b = al.zeros(3)
        self.hidden = al.ones(3)
        self.pair = TwoTensor(al.ones(3), al.zeros(3))
        self.apart = al.zeros(3)


def add_to(tensor: Any) -> Any:
    def write(array: Any) -> None:
        with al.no_grad():
            tensor.add_(1)

    return write


def reading(world: World, write: Any) -> Any:
    def f(x: Any, b: Any) -> Any:
        y = x * (b + 1)
        al.effects.callback(write, y)
        return y * (b + 1)

    return f


def writing(world: World, write: Any) -> Any:
    def f(x: Any, b: Any) -> Any:
        b.mul_(2)
        al.effects.callback(write, x)
        return x * b

    return f


def viewing(world: World, write: Any) -> Any:
    def f(x: Any, b: Any) -> Any:
        al.effects.callback(write, x)
        return b[1:], x[1:] * b[:2]

    return f


def finding(world: World, write: Any) -> Any:
    hidden = world.hidden

    def f(x: Any, b: Any) -> Any:
        y = x * hidden
        al.effects.callback(write, x)
        return y + hidden

    return f


def unwrapping(world: World, write: Any) -> Any:
    pair = world.pair

    def f(x: Any, b: Any) -> Any:
        al.effects.callback(write, x)
        return pair * 2, x * 2

    return f


CASES: dict[str, tuple[Any, Any]] = {
    "reads an argument": (reading, lambda world: world.b),
    "writes an argument": (writing, lambda world: world.b),
    "shows an argument": (viewing, lambda world: world.b),
    "reads a leaf": (reading, lambda world: world.x),
    "reads a view's memory": (reading, lambda world: world.b[:1]),
    "finds a tensor": (finding, lambda world: world.hidden),
    "finds a wrapper": (unwrapping, lambda world: world.pair.b),
}


@pytest.mark.rules("TOK-7")
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", CASES)
def test_an_effect_that_writes_what_the_function_reads_is_refused(name: str, backend: str) -> None:
    """In eager every op sees what was written before it; compiled code reads when it suits it."""
    make, target = CASES[name]
    world = World()
    compiled = al.compile(make(world, add_to(target(world))), backend=backend)
    before = target(world).tolist()
    for count in (1, 2):
        with pytest.raises(al.TokenError, match=WRITTEN) as caught:
            compiled(world.x, world.b)
        assert "(TOK-7)" in "".join(caught.value.__notes__)
        assert [value + count for value in before] == target(world).tolist()


@pytest.mark.rules("TOK-7")
@pytest.mark.parametrize("backend", BACKENDS)
def test_an_effect_may_write_what_the_function_does_not_read(backend: str) -> None:
    """Also an argument that is only passed along."""
    found = []
    for way in ("eager", backend):
        world = World()
        write, count = add_to(world.apart), add_to(world.b)

        def f(x: Any, b: Any, write: Any = write, count: Any = count) -> Any:
            al.effects.callback(write, x)
            al.effects.callback(count, x)
            return x * 2

        run = f if way == "eager" else al.compile(f, backend=way)
        for _ in range(2):
            run(world.x, world.b).sum().backward()
        found.append((world.apart.tolist(), world.b.tolist(), world.x.grad.tolist()))
    assert found[0] == found[1]


@pytest.mark.rules("TOK-7", "SAV-2", "PART-37")
@pytest.mark.thinned(2)
@pytest.mark.parametrize("partition", ["default", "min_cut"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_an_effect_of_the_backward_leaves_alone_what_is_saved(partition: str, backend: str) -> None:
    """No gradient has reached a leaf then. What eager's backward does not read it may write: such
    a value is not computed again from there.
    """
    found = []
    for is_saved, way in ((True, backend), (False, "eager"), (False, backend)):
        world = World()
        write = add_to(world.b)

        def f(x: Any, b: Any, is_saved: bool = is_saved, write: Any = write) -> Any:
            y = x * b if is_saved else x * (b + 1).exp2()
            y.register_hook(lambda grad: al.effects.callback(write, grad))
            return y * 1

        run = f if way == "eager" else al.compile(f, backend=way, partition=partition)
        y = run(world.x, world.b)
        if is_saved:
            with pytest.raises(al.TokenError, match=f"f_backward: {WRITTEN}"):
                y.sum().backward()
            assert world.x.grad is None
        else:
            y.sum().backward()
            found.append(world.x.grad.tolist())
        assert [1.0] * 3 == world.b.tolist()
    assert found[0] == found[1]


@pytest.mark.rules("TOK-7", "RNG-3", "RNG-5")
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("use", ["rand", "manual_seed", "get_rng_state"])
def test_an_effect_of_what_draws_leaves_the_generator_alone(
    use: str, late: bool, backend: str
) -> None:
    """The function has drawn ahead: numbers and states would be others than in eager."""

    def draw(array: Any) -> None:
        {"rand": lambda: al.rand(2), "manual_seed": lambda: al.manual_seed(1)}.get(
            use, al.get_rng_state
        )()

    def f(x: Any) -> Any:
        if not late:
            al.effects.callback(draw, x)
            return x * al.rand(3)
        y = x * 2
        y.register_hook(lambda grad: (al.effects.callback(draw, grad), grad * al.rand(3))[1])
        return y * 1

    compiled = al.compile(f, backend=backend)
    x = al.ones(3).requires_grad_()
    al.manual_seed(4)
    with pytest.raises(al.RngError, match="an effect of a compiled function that draws") as caught:
        compiled(x).sum().backward()
    assert "(TOK-7)" in "".join(caught.value.__notes__)
    assert (4, 0) == al.get_rng_state()
    assert x.grad is None


@pytest.mark.rules("TOK-7", "RNG-3")
@pytest.mark.parametrize("backend", BACKENDS)
def test_effects_draw_where_the_function_does_not_or_from_their_own(backend: str) -> None:
    """From the default generator, where it stands as in eager; from another one at any time."""
    found = []
    for way in ("eager", backend):
        own, seen = al.Generator().manual_seed(9), World()

        def tell(array: Any, seen: Any = seen) -> None:
            seen.apart.copy_(al.rand(3))

        def tell_own(array: Any, seen: Any = seen, own: Any = own) -> None:
            seen.hidden.copy_(al.rand(3, generator=own))

        def plain(x: Any, tell: Any = tell) -> Any:
            al.effects.callback(tell, x)
            return x * 2

        def drawing(x: Any, tell: Any = tell_own) -> Any:
            al.effects.callback(tell, x)
            return x * al.rand(3)

        al.manual_seed(3)
        runs = [f if way == "eager" else al.compile(f, backend=way) for f in (plain, drawing)]
        values = [run(al.ones(3)).tolist() for run in (*runs, *runs)]
        found.append((values, seen.apart.tolist(), seen.hidden.tolist(), al.get_rng_state()))
    assert found[0] == found[1]
