"""`check_subclass`: the laws of a wrapper, an object made of tensors that behaves like one.

W1  flattening returns the names of its parts, tensors or wrappers, and a context
W2  unflattening its parts returns an equal wrapper of the same parts
W3  its shape, strides and dtype are those of its tensor
W4  unwrapping returns the values of its tensor
W5  a function of wrappers has the values of the function of tensors
W6  a function of wrappers returns a wrapper where it returns a tensor of tensors
W7  a pure function writes no part, and its result has new memory
W8  a view shares memory with its operand where views of tensors do
W9  a write through a view reaches the wrapper, and the reverse
W10 an in-place function returns the wrapper itself, and keeps the memory of its parts
W11 gradients reach the wrapped tensor
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import attrs
import numpy as np

from aotlite.eager.base.tensor import Tensor
from aotlite.ir.errors import AotliteError, ArgumentError
from aotlite.testing.laws.errors import Checked, broken, running
from aotlite.testing.laws.ops.runs import same_bits
from aotlite.testing.laws.wrapper_functions import (
    FUNCTIONS,
    WrapperFunction,
    dense_parts,
    flattened,
    is_wrapper,
    tensors,
)

__all__ = ["WRAPPER_LAWS", "Wrapper", "WrapperLaw", "check_subclass"]


@attrs.frozen(eq=False)
class Wrapper:
    """The conversions between a tensor and a wrapper."""

    make: Callable[[Tensor], Any]
    unwrap: Callable[[Any], Tensor]


@attrs.frozen
class WrapperLaw:
    """A named law: `check(wrapper, function, args)` raises if it is broken.

    `kinds` are the kinds of function that it applies to; if empty, it applies to a wrapper alone,
    and is called as `check(wrapper, tensor)`.
    """

    name: str
    claim: str
    check: Callable[..., None]
    kinds: tuple[str, ...] = ()


def check_subclass(
    make: Callable[[Tensor], object],
    unwrap: Callable[[object], Tensor],
    functions: Iterable[WrapperFunction] | None = None,
    *,
    gradients: bool = True,
) -> Checked:
    """Checks a wrapper, and returns the laws that it keeps. Raises LawError for a broken one.

    `make(tensor)` gives a wrapper that stands for the tensor, `unwrap(wrapper)` the tensor that it
    stands for. `functions` are what it can do; all of `wrapper_functions.FUNCTIONS` without. A
    function that it refuses with an error of ours is left out, and counted; a tensor
    that it refuses is left out. Without `gradients`, law W11 is not asked for.
    `docs/laws.md` shows a wrapper of twenty lines.
    """
    chosen = FUNCTIONS if functions is None else tuple(functions)
    _check_functions(chosen)
    wrapper = Wrapper(make, unwrap)
    subject = f"wrapper {type(make(next(tensors(1))[0])).__name__!r}"
    laws = [law for law in WRAPPER_LAWS if gradients or law.name != "W11"]
    cases = _check_alone(wrapper, subject, laws)
    refused = []
    for function in chosen:
        found = _check_function(wrapper, subject, laws, function)
        cases += found or 0
        refused += [] if found is not None else [function.name]
    if chosen and len(refused) == len(chosen):
        raise ArgumentError(
            f"laws: {subject} refuses all of {len(chosen)} functions, expected it to take one"
        )
    return Checked(subject, tuple(law.name for law in laws), cases, refused=tuple(refused))


def _check_functions(functions: tuple[object, ...]) -> None:
    kinds = ("pure", "view", "in-place")
    for each in functions:
        if not isinstance(each, WrapperFunction) or each.kind not in kinds:
            raise ArgumentError(
                f"laws: a function is {each!r}, expected a WrapperFunction of kind "
                f"{', '.join(kinds)}"
            )


def _check_alone(wrapper: Wrapper, subject: str, laws: list[WrapperLaw]) -> int:
    """Checks the laws of a wrapper alone, on each tensor; returns the number of tensors."""
    every = [each[0] for each in tensors(1) if _can_be_made(wrapper, each[0])]
    for tensor in every:
        for law in laws:
            if not law.kinds:
                with running(law.name, law.claim, f"{subject} of {_shown(tensor)}", tensor):
                    law.check(wrapper, tensor)
    return len(every)


def _check_function(
    wrapper: Wrapper, subject: str, laws: list[WrapperLaw], function: WrapperFunction
) -> int | None:
    """Checks the laws of a function; returns the number of cases, None if it is refused."""
    count = 0
    for index in range(len(list(tensors(1)))):
        args = _fresh(function, index)
        if not _takes(function, args) or not _can_be_made(wrapper, args[0]):
            continue
        if not _supports(wrapper, function, index):
            return None
        count += 1
        for law in laws:
            if function.kind in law.kinds:
                args = _fresh(function, index)
                where = f"{subject}, {function.name} of {', '.join(map(_shown, args))}"
                with running(law.name, law.claim, where, function.name):
                    law.check(wrapper, function, args)
    return count


def _can_be_made(wrapper: Wrapper, tensor: Tensor) -> bool:
    """Whether the wrapper accepts the tensor: a wrapper may refuse a dtype, for example."""
    try:
        wrapper.make(tensor.clone())
    except AotliteError:
        return False
    except Exception:
        return True
    return True


def _fresh(function: WrapperFunction, index: int) -> list[Tensor]:
    return list(tensors(function.count))[index]


def _takes(function: WrapperFunction, args: list[Tensor]) -> bool:
    """Whether the function runs on the tensors themselves."""
    try:
        function.function(*args)
    except AotliteError:
        return False
    return True


def _supports(wrapper: Wrapper, function: WrapperFunction, index: int) -> bool:
    """Whether the wrapper accepts the function. The laws report other errors."""
    try:
        function.function(*map(wrapper.make, _fresh(function, index)))
    except (AotliteError, NotImplementedError):
        return False
    except Exception:
        return True
    return True


# --------------------------------------------------------------------- laws of a wrapper alone
def _flattens(wrapper: Wrapper, tensor: Tensor) -> None:
    made = wrapper.make(tensor)
    if not is_wrapper(made):
        raise broken(
            f"{type(made).__name__} lacks __tensor_flatten__ or __tensor_unflatten__, expected both"
        )
    dense_parts(made)
    first, second = flattened(made), flattened(made)
    if first != second:
        raise broken(f"flattened twice it gives {first} and {second}, expected the same")


def _unflattens(wrapper: Wrapper, tensor: Tensor) -> None:
    made = wrapper.make(tensor)
    _check_rebuilt(made, _rebuilt(made))


def _rebuilt(made: Any) -> object:
    """The wrapper, unflattened from its parts; parts that are wrappers are unflattened too."""
    if isinstance(made, Tensor):
        return made
    names, context = flattened(made)
    parts = {name: _rebuilt(getattr(made, name)) for name in names}
    return type(made).__tensor_unflatten__(parts, context, tuple(made.shape), tuple(made.stride()))


def _check_rebuilt(made: Any, again: Any) -> None:
    if type(again) is not type(made):
        raise broken(f"unflattened it is a {type(again).__name__}, expected {type(made).__name__}")
    if flattened(again) != flattened(made):
        raise broken(f"unflattened it has {flattened(again)}, expected {flattened(made)}")
    for k, (mine, its) in enumerate(zip(dense_parts(made), dense_parts(again), strict=True)):
        if mine is not its:
            raise broken(f"unflattened its part {k} is another tensor, expected the one given")
    if _geometry(again) != _geometry(made):
        raise broken(f"unflattened it is {_geometry(again)}, expected {_geometry(made)}")


def _geometry(value: Any) -> tuple[object, ...]:
    return tuple(value.shape), tuple(value.stride()), value.dtype


def _has_geometry(wrapper: Wrapper, tensor: Tensor) -> None:
    made = wrapper.make(tensor)
    got, expected = _geometry(made), _geometry(wrapper.unwrap(made))
    if got != expected or got != _geometry(tensor):
        raise broken(f"its geometry is {got}, unwrapped {expected}, expected {_geometry(tensor)}")


def _unwraps(wrapper: Wrapper, tensor: Tensor) -> None:
    before = np.array(tensor.array)
    _check_equal("unwrapped it", wrapper.unwrap(wrapper.make(tensor)), before)
    _check_equal("the tensor afterwards", tensor, before)


# ------------------------------------------------------------------------ laws of functions
def _gives_the_same(wrapper: Wrapper, function: WrapperFunction, args: list[Tensor]) -> None:
    made = [wrapper.make(arg.clone()) for arg in args]
    got = _leaves(function.function(*made))
    expected = _leaves(function.function(*args))
    if len(got) != len(expected):
        raise broken(f"it gives {len(got)} results, expected {len(expected)}")
    for k, (its, mine) in enumerate(zip(got, expected, strict=True)):
        if isinstance(mine, Tensor):
            _check_equal(f"result {k}", _plain(wrapper, its), np.array(mine.array))
        elif its != mine:
            raise broken(f"result {k} is {its!r}, expected {mine!r}")


def _gives_wrappers(wrapper: Wrapper, function: WrapperFunction, args: list[Tensor]) -> None:
    made = [wrapper.make(arg.clone()) for arg in args]
    for k, (its, mine) in enumerate(
        zip(_leaves(function.function(*made)), _leaves(function.function(*args)), strict=True)
    ):
        if isinstance(mine, Tensor) and type(its) is not type(made[0]):
            got, expected = type(its).__name__, type(made[0]).__name__
            raise broken(f"result {k} is a {got}, expected a {expected} where tensors give one")


def _writes_nothing(wrapper: Wrapper, function: WrapperFunction, args: list[Tensor]) -> None:
    made = [wrapper.make(arg) for arg in args]
    parts = [part for each in made for part in dense_parts(each)]
    before = [(np.array(part.array), part.version) for part in parts]
    results = _leaves(function.function(*made))
    for k, (part, (values, version)) in enumerate(zip(parts, before, strict=True)):
        if part.version != version or not same_bits(part.array, values):
            raise broken(f"it writes part {k} of its arguments, expected new results alone")
    for k, result in enumerate(results):
        if any(_shares(a, b) for a in parts for b in _parts_of(result) if not _is_shared(a, made)):
            raise broken(f"result {k} shares memory with an argument, expected memory of its own")
    again = _leaves(function.function(*made))
    for k, (first, second) in enumerate(zip(results, again, strict=True)):
        if first is second and is_wrapper(first):
            raise broken(f"result {k} is the same object a second time, expected another")


def _is_shared(part: Tensor, made: list[Any]) -> bool:
    """Whether several wrappers have the part, such as a common scale."""
    return sum(part is each for wrapper in made for each in dense_parts(wrapper)) > 1


def _shares_as_views(wrapper: Wrapper, function: WrapperFunction, args: list[Tensor]) -> None:
    made = wrapper.make(args[0].clone())
    plain = args[0].clone()
    expected = _shares(plain, _first(function.function(plain)))
    seen = _first(function.function(made))
    got = any(_shares(a, b) for a in dense_parts(made) for b in _parts_of(seen))
    if got != expected:
        said = "shares memory" if got else "shares no memory"
        raise broken(f"the view {said} with the wrapper, expected as for tensors")


def _writes_reach(wrapper: Wrapper, function: WrapperFunction, args: list[Tensor]) -> None:
    for through_view in (True, False):
        made, plain = wrapper.make(args[0].clone()), args[0].clone()
        both = [(each, _first(function.function(each))) for each in (made, plain)]
        for whole, seen in both:
            (seen if through_view else whole).mul_(2.0)
        names = ("the wrapper after a write to the view", "the view after a write to the wrapper")
        target = 0 if through_view else 1
        got, expected = both[0][target], both[1][target]
        _check_equal(names[target], _plain(wrapper, got), np.array(expected.array))


def _gives_itself(wrapper: Wrapper, function: WrapperFunction, args: list[Tensor]) -> None:
    made = [wrapper.make(arg.clone()) for arg in args]
    parts = dense_parts(made[0])
    buffers = [part.storage for part in parts]
    result = _first(function.function(*made))
    if result is not made[0]:
        raise broken("it gives another object, expected the wrapper that it writes")
    function.function(*args)
    _check_equal("the wrapper afterwards", wrapper.unwrap(made[0]), np.array(args[0].array))
    if [part.storage for part in dense_parts(made[0])] != buffers:
        raise broken("a part lies in other memory than before, expected a write where it lay")


def _keeps_gradients(wrapper: Wrapper, function: WrapperFunction, args: list[Tensor]) -> None:
    plain = [arg.detach().clone().requires_grad_() for arg in args]
    given = [arg.detach().clone().requires_grad_() for arg in args]
    # A leaf may not be written in place.
    _first(function.function(*[each * 1.0 for each in plain])).sum().backward()
    wrapped = _first(function.function(*[wrapper.make(each * 1.0) for each in given]))
    wrapper.unwrap(wrapped).sum().backward()
    for k, (mine, its) in enumerate(zip(plain, given, strict=True)):
        if its.grad is None:
            raise broken(f"argument {k} gets no gradient, expected {mine.grad}")
        _check_equal(f"the gradient of argument {k}", its.grad, np.array(_array(mine.grad)))


# ---------------------------------------------------------------------------------------- shared
def _leaves(value: object) -> list[Any]:
    if isinstance(value, (tuple, list)):
        return [leaf for item in value for leaf in _leaves(item)]
    return [value]


def _first(value: object) -> Any:
    return _leaves(value)[0]


def _plain(wrapper: Wrapper, value: object) -> object:
    return wrapper.unwrap(value) if is_wrapper(value) else value


def _parts_of(value: Any) -> Iterator[Tensor]:
    if is_wrapper(value) or isinstance(value, Tensor):
        yield from dense_parts(value)


def _shares(a: Tensor, b: Tensor) -> bool:
    return a.storage is b.storage and a.numel() > 0 and b.numel() > 0


def _array(tensor: Tensor) -> Any:
    return tensor.detach().array


def _check_equal(what: str, got: object, expected: np.ndarray) -> None:
    if not isinstance(got, Tensor):
        raise broken(f"{what} is {got!r}, expected a tensor")
    if not same_bits(_array(got), expected):
        raise broken(f"{what} is {got.dtype}{got.tolist()}, expected {expected.tolist()}")


def _shown(tensor: Tensor) -> str:
    return str(tensor.meta)


_NEW = ("pure", "view")
_EVERY = (*_NEW, "in-place")
WRAPPER_LAWS: tuple[WrapperLaw, ...] = (
    WrapperLaw("W1", "flattening returns names of parts and a context", _flattens),
    WrapperLaw("W2", "unflattening returns an equal wrapper of the same parts", _unflattens),
    WrapperLaw("W3", "its geometry and dtype are its tensor's", _has_geometry),
    WrapperLaw("W4", "unwrapping returns its tensor's values", _unwraps),
    WrapperLaw("W5", "functions have the values of functions of tensors", _gives_the_same, _NEW),
    WrapperLaw("W6", "functions of wrappers return wrappers", _gives_wrappers, _EVERY),
    WrapperLaw("W7", "pure functions write nothing and share nothing", _writes_nothing, ("pure",)),
    WrapperLaw("W8", "views share memory where views of tensors do", _shares_as_views, ("view",)),
    WrapperLaw("W9", "writes through a view reach the wrapper", _writes_reach, ("view",)),
    WrapperLaw("W10", "in-place functions return the wrapper itself", _gives_itself, ("in-place",)),
    WrapperLaw("W11", "gradients reach the wrapped tensor", _keeps_gradients, _EVERY),
)
"""The laws of wrappers."""
