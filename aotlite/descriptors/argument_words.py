"""`ArgumentWords`: the arguments of an exported function by name and path, for errors.

    the pipeline says          of aot_export_module(mod, (x, batch))
    argument 2                 x, where the Module has two parameters
    argument 1[1]['a']         batch['a']

The pipeline numbers the flat arguments of what it captures, parameters and buffers among them; of
containers it says the position. An export knows the names of both. Rules: EXP-20.
Spec: `specs/export.md`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import attrs

from aotlite.descriptors.kinds import path_text
from aotlite.descriptors.place_words import parameter_names
from aotlite.ir.errors import AotliteError
from aotlite.pipeline.arguments import check_leaf
from aotlite.pipeline.containers.leaf_paths import leaf_paths


@attrs.frozen
class ArgumentWords:
    """The words for the arguments of one captured function."""

    leaves: tuple[str, ...]
    """For each flat argument, the state first."""
    positions: Mapping[str, str]
    """For each argument as errors of containers say it, `1[0]` or `'key'`; those of `nested`
    arguments in `dynamic_shapes=`, too: `args[0]`."""
    count: int = 0
    """How many of the flat arguments are state."""

    @classmethod
    def of(
        cls,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        state: Sequence[str] | None = None,
        *,
        nested: bool = False,
    ) -> ArgumentWords:
        """The words of `function(*args, **kwargs)`, captured as a function of (*args, **kwargs), of
        (state, *args, **kwargs) if there are names of `state`, or, if `nested`, of
        (state, args, kwargs)."""
        names = parameter_names(function)
        words = [path_text(_named(names, k)) for k in range(len(args))]
        before = 0 if state is None else 1
        positions = {f"0[{k}]": repr(name) for k, name in enumerate(state or ())}
        for k, word in enumerate(words):
            positions[f"1[{k}]" if nested else f"{before + k}"] = word
        positions |= {f"2[{key!r}]" if nested else repr(key): key for key in kwargs}
        if nested:
            positions |= {f"args[{k}]": word for k, word in enumerate(words)}
            positions |= {f"kwargs[{key!r}]": key for key in kwargs}
        leaves = [*map(repr, state or ())]
        for which, first, *rest in leaf_paths((tuple(args), dict(kwargs))):
            leaves.append(path_text((*(_named(names, first) if which == 0 else (first,)), *rest)))
        return cls(tuple(leaves), positions, len(state or ()))

    @property
    def state(self) -> tuple[str, ...]:
        """The words for the state."""
        return self.leaves[: self.count]

    def check(self, leaves: Sequence[Any]) -> None:
        """Raises ArgumentError for an argument of a type that no export takes (GEN-7)."""
        with self.naming():
            for word, leaf in zip(self.leaves, leaves, strict=True):
                check_leaf(leaf, word)

    @contextmanager
    def naming(self) -> Iterator[None]:
        """A block whose errors about arguments say their names."""
        try:
            yield
        except AotliteError as error:
            self._rename(error)
            raise

    def _rename(self, error: AotliteError) -> None:
        text = error.args[0] if error.args else None
        if not isinstance(text, str) or not text.startswith(_OF_PIPELINE):
            return
        head = next((each for each in _OF_CONTAINERS if text.startswith(each)), "")
        found = self._at(text[len(head) :]) if head else None
        text = self.named(text) if found is None else head + found
        if text.startswith(_OF_SHAPES):
            text = _ELEMENT.sub(lambda at: self.positions.get(at[0], at[0]), text)
        error.args = (text.replace("compile: ", "export: ", 1), *error.args[1:])
        if notes := getattr(error, "__notes__", None):
            notes[:] = [self.named(each) for each in notes]

    def _at(self, text: str) -> str | None:
        """A text that begins with the position of an argument, by its name."""
        for position, word in self.positions.items():
            rest = text.removeprefix(position)
            if rest != text and rest[:1] in ("", " ", ",", "[", "."):
                return word + rest
        return None

    def named(self, text: str) -> str:
        """A text with words for the numbers of flat arguments."""
        words = self.leaves
        return _NUMBERED.sub(lambda at: dict(enumerate(words)).get(int(at[1]), at[0]), text)


_NUMBERED = re.compile(r"argument (\d+)")
_OF_CONTAINERS = ("compile: the function changes argument ", "ndarray: argument ")
"""How errors begin that say an argument by its position."""
_OF_SHAPES = ("compile: dynamic_shapes ", "dynamic_shapes of ")
"""How errors begin that are about `dynamic_shapes=` of the captured function."""
_OF_PIPELINE = ("compile: ", "ndarray: argument ", "dynamic_shapes of ")
_ELEMENT = re.compile(r"\b(kw)?args\[[^\]]+\]")


def _named(names: Sequence[str], position: int) -> tuple[Any, ...]:
    """The path of a positional argument: a parameter, or one of `*args`."""
    rest = position - len(names)
    return (names[position],) if rest < 0 else ("args", rest)
