"""Tour 6, exercise: a mistake in stage 6, and the smallest program that shows it."""

from collections.abc import Callable
from typing import Any

import aotlite as al
from aotlite.ir.graph import Graph
from aotlite.ir.run.transform import Transformer
from aotlite.stages.s6_functionalize import functionalize
from aotlite.testing import differences_of, draw, shrunk


class IndexZero(Transformer):
    """Every select_scatter writes index 0."""

    def call(self, target: Any, args: tuple[Any, ...]) -> Any:
        if target.name == "select_scatter":
            args = (*args[:3], 0)
        return super().call(target, args)


def wrong(graph: Graph) -> Graph:
    return IndexZero(functionalize(graph)).transform()


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return al.compile(function, backend="reference", stages={"functionalize": wrong})


def differs(program: Any) -> bool:
    return bool(differences_of(program, compile=compiled))


def main() -> None:
    seed = next(seed for seed in range(1000) if differs(draw(seed)))
    small = shrunk(draw(seed), differs)
    print(f"program {seed}, made small:", small.to_script(), sep="\n")


if __name__ == "__main__":
    main()
