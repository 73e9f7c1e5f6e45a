"""First and second derivatives of the sum of squares of results, by a file of order 2."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from aotlite.export import program
from aotlite.ir.errors import UnsupportedError
from tests.programs.gradients_of_gradients import Setup, leaves_of
from tests.python_export.comparison import Arrays, module_of


def derivatives_by_file(setup: Setup, function: Callable[..., Any]) -> list[Any] | None:
    """What `gradients_of_gradients.derivatives` computes, by the file of the function.

    Raises UnsupportedError where the file has no second order, or a leaf is no argument.
    """
    values, args = setup()
    made = program(function, *args, order=2)
    module = module_of(made.to_python())
    entry = next((of for name, of in vars(module).items() if name.endswith("_of_order_2")), None)
    if entry is None:
        raise UnsupportedError("the file has no second order")
    texts = [re.sub(r"^args\[(\d+)\]", r"arg_\1", name) for name in made.records.arguments.names]
    pairs = list(zip(args, texts, strict=True))
    names = {id(arg): name for arg, name in reversed(pairs)}  # the first of one that is twice there
    leaves = leaves_of(values)
    if any(id(leaf) not in names for leaf in leaves):
        raise UnsupportedError("a leaf is no argument")
    if any(each.writes_data and each.requires_grad for each in made.records.records.meta.inputs):
        raise UnsupportedError("a leaf is written: its gradient is that of its new history")
    arrays = Arrays()
    results, pullback = entry(*[arrays.of(each) for each in args])
    wanted = pullback.__code__.co_varnames[: pullback.__code__.co_argcount]
    if not all(each.startswith("d_output_") for each in wanted):
        raise UnsupportedError("a written argument has a gradient")
    found = {each: np.asarray(results[int(each.rpartition("_")[2])]) for each in wanted}
    first, again = pullback(**{name: 2 * value for name, value in found.items()})
    second = again(**{f"d_{name}": 2 * value for name, value in first.items()})
    through, _ = pullback(**{name: 2 * second[name] for name in found if name in second})
    keys = [names[id(leaf)] for leaf in leaves]
    parts = {key: [of[key] for of in (second, through) if key in of] for key in keys}
    total = {key: sum(of[1:], of[0]) for key, of in parts.items() if of}
    return [*[first.get(key) for key in keys], *[total.get(key) for key in keys]]
