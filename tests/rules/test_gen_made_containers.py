"""GEN-14: lists and dicts that a function makes, and keys that only a capture has."""

from __future__ import annotations

from typing import Any

import pytest

import aotlite as al


def in_two_places(x: Any, layers: Any, names: Any) -> Any:
    made = {"k": x * 0}
    layers.append(made)
    names["l0"] = made
    return x.sum()


def also_returned(x: Any, log: Any) -> Any:
    made = {"loss": x.sum()}
    log.append(made)
    return made


def size_as_key(x: Any, seen: Any) -> Any:
    seen[x.shape[0]] = 1
    return x * 2


def sizes_in_a_key(x: Any, seen: Any) -> Any:
    seen["of", x.shape[0] + 1] = x * 3
    return x * 2


def tensor_as_key(x: Any, seen: Any) -> Any:
    seen[x] = 1
    return x * 2


@pytest.mark.rules("GEN-14")
@pytest.mark.parametrize(
    ("function", "args"),
    [(in_two_places, ([], {})), (also_returned, ([],))],
)
def test_a_new_container_in_two_places_is_refused(function: Any, args: Any) -> None:
    """A call would make two of it, and who changes one would not see it in the other."""
    with pytest.raises(al.UnsupportedError, match="each call can do again") as caught:
        al.compile(function)(al.ones(2), *args)
    assert "put a copy into one of two places" in str(caught.value.__notes__)
    assert not any(args)


@pytest.mark.rules("GEN-14")
def test_a_tensor_as_a_key_is_refused() -> None:
    seen: dict[Any, Any] = {}
    with pytest.raises(al.UnsupportedError, match="each call can do again") as caught:
        al.compile(tensor_as_key)(al.ones(3), seen)
    assert "use numbers as keys" in str(caught.value.__notes__)
    assert {} == seen


@pytest.mark.rules("GEN-14")
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("function", [size_as_key, sizes_in_a_key])
def test_a_size_as_a_key_is_the_number_of_the_call(function: Any, dynamic: Any) -> None:
    """Sizes are numbers then, also where they were to be symbols."""
    compiled = al.compile(function, dynamic=dynamic)
    for size in (3, 4, 5, 3):
        found, expected = dict[Any, Any](), dict[Any, Any]()
        compiled(al.ones(size), found)
        function(al.ones(size), expected)
        assert [*expected] == [*found]
        assert [int, tuple][function is sizes_in_a_key] is type(next(iter(found)))
