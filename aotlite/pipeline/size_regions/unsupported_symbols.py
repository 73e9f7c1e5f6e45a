"""A function that does not take symbols for its sizes is captured again, with numbers.

C code that wants an object of the type int refuses a symbol: `json.dumps(x.shape[0])`. A hook, a
callback and a key of a returned dict are read when there is no symbol any more. The text of an
error may name the class of a symbol. Nobody asked for symbols that `dynamic=None` or `dynamic=True`
made, so that is no error of the user's.
Rule: DYN-23. Spec: `specs/size_regions.md`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from opcode import opmap
from types import TracebackType
from typing import Any

from aotlite.eager.subclass.protocol import flatten
from aotlite.ir.errors import AotliteError, GuardError, UnsupportedError, noted
from aotlite.ir.provenance.location import place_of
from aotlite.ir.symbols.user_code import held_symbol
from aotlite.pipeline.size_regions.exact_types import names_types_in_errors
from aotlite.stages.records.capture import Captured
from aotlite.stages.records.capture_inputs import InputRole
from aotlite.stages.records.symbolic_sizes import SymbolicSizes, all_asked, undoing_all
from aotlite.stages.shared.memory.sized_views import (
    arguments_of,
    changing_node,
    view_arguments,
    with_a_family,
    without,
)
from aotlite.stages.shared.size_values import AtSizes

_RAISE = opmap["RAISE_VARARGS"]


def by_symbols(
    sizes: SymbolicSizes,
    capture: Callable[..., Captured],
    call: Sequence[object],
    refused: list[str],
) -> Captured:
    """The capture with symbols; with numbers, if code refuses symbols that nobody asked for:
    `refused` gets the reason.

    An error of eager's is raised by the second one as by the first; one that views raise for want
    of their family is not. Where a size is marked or named, the error names the user's line.
    """
    marked = {source: asked for source, asked in sizes.requests.items() if asked.is_marked}
    try:
        captured = capture(*call, sizes)
        views = with_a_family(captured)
        kept = "" if views else _kept(captured, sizes)
        _check_views(captured, sizes, views)
        if not kept and not views:
            return captured
        captured.recorder.close()
        refused.append(f"{kept} has a number made of one (DYN-23)" if kept else _of(views))
        if marked and kept:
            what = f"{all_asked(marked)}, and {kept} has a number made of it"
            raise noted(
                GuardError(f"compile: {what}, expected numbers that the function alone reads"),
                "Pass int(size), which compiles the function for this size, or "
                f"{undoing_all(marked)}.",
            )
    except Exception as error:
        of_symbols = _may_be_of_symbols(error)
        if marked:
            if of_symbols and isinstance(error, TypeError):
                error.add_note(
                    f"{all_asked(marked)}. Pass int(size), or {undoing_all(marked)}: "
                    f"{_line(error.__traceback__)}"
                )
            raise
        views = dict.fromkeys(view_arguments(sizes, call[2]), "")  # type: ignore[arg-type]
        of_symbols = of_symbols or isinstance(error, UnsupportedError)
        if not (views or of_symbols or _names_class(error, *call)):
            raise
        words = f"{type(error).__name__}: {error}".partition("\n")[0]
        if views:
            refused.append(_of(dict.fromkeys(views, f"symbols raise {words}")))
        else:
            refused.append(f"{_line(error.__traceback__)} takes no symbols ({words})")
    if not views:
        return capture(*call)
    return by_symbols(without(sizes, views), capture, call, refused)


def _of(views: Mapping[InputRole, str]) -> str:
    """Why sizes of these views are numbers."""
    names = " and ".join([f"argument {index}" for index in sorted({*arguments_of(views)})])
    are = "are views" if len({*arguments_of(views)}) > 1 else "is a view"
    reasons = ", and ".join(dict.fromkeys(views.values()))
    return f"{names} {are} of one base, and {reasons} (SYN-12)"


def _check_views(captured: Captured, sizes: SymbolicSizes, views: Collection[InputRole]) -> None:
    """Raises GuardError where a size of a view is marked that has to be a number (SYN-12)."""
    arguments = set(arguments_of(views))
    marked = {
        source: asked
        for source, asked in sizes.requests.items()
        if asked.is_marked and source.argument in arguments
    }
    if not marked:
        return
    captured.recorder.close()
    node = changing_node(captured, views)
    at = "" if node is None else f": {node.target.name}"
    if node is not None and node.location is not None:
        at += f", {place_of(node.location)}"
    are = "are views" if len(arguments) > 1 else "is a view"
    views_of = " and ".join([f"argument {index}" for index in sorted(arguments)])
    raise noted(
        GuardError(
            f"compile: {all_asked(marked)}, and the function changes the "
            f"history or geometry of one of {views_of}, which {are} of one base{at}, expected "
            "views that are read"
        ),
        f"Pass the base, and take the views inside. Or {undoing_all(marked)}: each size compiles "
        "then. (SYN-12)",
    )


def _kept(captured: Captured, sizes: SymbolicSizes) -> str:
    """What has symbols when the function is done, and is read later: a hook or callback, an object
    in the spec of a wrapper, or a dict that it returns."""
    if sizes.kept:
        name = getattr(sizes.kept[0], "__qualname__", type(sizes.kept[0]).__name__)
        return f"the hook or callback {name}"
    for wrapper in captured.recorder.wrapped.nodes.values():
        spec = None if wrapper is None else flatten(wrapper)[1]
        if held_symbol(AtSizes(sizes.table.hints).put(spec)) is not None:  # what `put` cannot reach
            return f"the spec of a {type(wrapper).__name__}"
    return "a key of a dict that the function returns" if _has_symbolic_keys(captured) else ""


def _has_symbolic_keys(captured: Captured) -> bool:
    spec = captured.containers.spec
    return spec is not None and any(held_symbol(path) is not None for path in spec.paths())


def with_plain_keys(captured: Captured) -> Captured:
    """The same. Raises UnsupportedError for a returned dict with a count as a key (DYN-32)."""
    if captured.recorder.sizes is not None and _has_symbolic_keys(captured):
        captured.recorder.close()
        raise noted(
            UnsupportedError(
                "capture: a dict that the function returns has a number that depends on values as "
                "a key, expected it among the dict's values"
            ),
            "Or compute the number outside of the compiled function, and pass it in. (DYN-32)",
        )
    return captured


def _names_class(error: Exception, function: object, _: object, leaves: Any, *__: object) -> bool:
    """Whether a user's `raise` may have put the class of a symbol into the text of the error."""
    return not isinstance(error, AotliteError) and names_types_in_errors(function, leaves)


def _may_be_of_symbols(error: Exception) -> bool:
    """Whether code in C, or of Python's library, may have raised it: no `raise` of a user's."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    if at is None or isinstance(error, AotliteError):
        return False
    frame = at.tb_frame
    package = str(frame.f_globals.get("__name__")).partition(".")[0]
    of_library = package == "numpy" or package in sys.stdlib_module_names
    return of_library or frame.f_code.co_code[at.tb_lasti] != _RAISE


def _line(at: TracebackType | None) -> str:
    """The innermost line outside aotlite and Python's library."""
    found = ""
    while at is not None:
        frame = at.tb_frame
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        if package != "aotlite" and package not in sys.stdlib_module_names:
            found = str(place_of((frame.f_code, at.tb_lasti)))
        at = at.tb_next
    return found
