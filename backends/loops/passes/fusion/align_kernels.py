"""Alignment: two kernels are brought onto the same axes, so that their bodies can be joined.

The link between them is an address that both have. Where a[i0<8, i1<4] stores b1[4*i0 + i1] and
c[j0<32] loads b1[j0], j0 is split into (8, 4). Input: an earlier kernel, a later one and their
link; output: both over common axes, a split of the later one's axes that must come before, or None.
`merge` joins the bodies. Spec: `specs/fusion.md`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs

from aotlite.backends.loops.analysis.affine import Forms, Split, is_injective, solve, unit, whole
from aotlite.backends.loops.analysis.size_proofs import exact_quotient
from aotlite.backends.loops.program import Kernel, Store, loads_of
from aotlite.backends.loops.rewrite import marked, moved_body, split_axis
from aotlite.ir.scalar.expression import Affine

Pair = tuple[Kernel, Kernel]


@attrs.frozen
class Link:
    """Two addresses of one buffer, which tell which points of two kernels belong together."""

    first: Affine
    """The address in the earlier kernel."""
    second: Affine
    """The address in the later kernel."""
    of_rows: bool
    """Whether `first` uses space axes only."""


def aligned(first: Kernel, second: Kernel, link: Link) -> Pair | Split | None:
    """Returns both kernels over common axes; a Split of the second one's axes that must be made
    before; None where their points do not correspond."""
    count = first.space if link.of_rows else len(first.extents)
    target = attrs.evolve(link.first, coefficients=link.first.coefficients[:count])
    if link.second.dynamic:
        return None
    if link.first == link.second and first.extents == second.extents:
        pair = _alike(first, second, target.coefficients)
        if pair is not None:
            return pair
    forms = solve(link.second, whole(second.extents), target, first.extents[:count])
    if forms is None or isinstance(forms, Split):
        return forms
    if is_flexible(first):
        return _moved_onto(first, second, forms, link.second)
    return _Rigid(first, second, link.of_rows).pair(forms)


def _alike(first: Kernel, second: Kernel, steps: tuple[int, ...]) -> Pair | None:
    """Returns both kernels as they are, if equal addresses mean equal points; else None."""
    space = min(first.space, second.space)
    both_rigid = not (is_flexible(first) or is_flexible(second))
    if (both_rigid and first.space != second.space) or not is_injective(
        steps, first.extents[: len(steps)]
    ):
        return None
    first = Kernel(first.name, first.extents, space, first.body)
    return first, Kernel(second.name, second.extents, space, second.body)


def is_flexible(kernel: Kernel) -> bool:
    """Whether all axes are independent, so that any of them may become an inner axis."""
    return kernel.space == len(kernel.extents)


def _moved_onto(first: Kernel, second: Kernel, forms: Forms, address: Affine) -> Pair | None:
    """Returns the pair with the first kernel, which is flexible, moved onto the axes of the second,
    or onto its space axes."""
    count = len(second.extents)
    used = [any(form.coefficients[k] for form in forms) for k in range(count)]
    extents = [n for n, u in zip(second.extents, used, strict=True) if u]
    steps = [c for c, u in zip(address.coefficients, used, strict=True) if u]
    if math.prod(extents) != math.prod(first.extents) or not is_injective(steps, extents):
        return None
    each_row = not any(used[second.space :])
    if not all(used[: second.space]) or not (all(used) or each_row):
        return None
    body = moved_body(first.body, forms, count)
    if each_row and not is_flexible(second):
        body = tuple([marked(s, True) if type(s) is Store else s for s in body])
    return Kernel(first.name, second.extents, second.space, body), second


class _Rigid:
    """The alignment of a second kernel with a first one whose inner axes must stay."""

    def __init__(self, first: Kernel, second: Kernel, of_rows: bool) -> None:
        self.first = first
        self.second = second
        self.of_rows = of_rows

    def pair(self, forms: Forms) -> Pair | Split | None:
        """Returns both kernels over the first one's axes, some of which are split."""
        first, second = self.first, self.second
        groups = _groups(forms, second.extents, first.extents)
        if groups is None:
            return None
        used = {k for group in groups for k in group}
        rest = [k for k in range(len(second.extents)) if k not in used]
        if rest and not self.of_rows:
            return None
        if not is_flexible(second) and (
            {k for group in groups[: first.space] for k in group} != set(range(second.space))
        ):
            return None
        if rest:
            return self._with_inner(groups, self._ordered(rest))
        return self._placed(groups, each_row=self.of_rows)

    def _with_inner(self, groups: list[list[int]], rest: list[int]) -> Pair | Split | None:
        """Returns the pair in which the second's remaining axes become the first's inner axes, or
        parts of them."""
        inner = self.first.extents[self.first.space :]
        parts = common_parts([self.second.extents[k] for k in rest], inner)
        if parts is None:
            return None
        for k, part in zip(rest, parts[0], strict=True):
            if len(part) > 1:
                return Split(k, math.prod(part[1:]))
        places = iter(rest)
        inner_groups = [[next(places) for _ in part] for part in parts[1]]
        return self._placed([*groups, *inner_groups], each_row=False)

    def _ordered(self, rest: list[int]) -> list[int]:
        """Returns the axes in the order of the first's inner axes, as common loads tell it."""
        if len(rest) < 2 or not is_flexible(self.second):
            return rest
        space = self.first.space
        steps = {v.args[0]: v.args[1].coefficients[space:] for v in loads_of(self.first)}
        for value in loads_of(self.second):
            inner = steps.get(value.args[0], ())
            own = {value.args[1].coefficients[k]: k for k in rest}
            if len(own) == len(rest) and set(own) == set(inner):
                return [own[step] for step in inner]
        return rest

    def _placed(self, groups: list[list[int]], *, each_row: bool) -> Pair | None:
        """The first with each axis split as its group is, and the second over the result."""
        second, space = self.second, self.first.space
        if not is_flexible(second):
            inner = [k for group in groups[space:] for k in group]
            if inner != list(range(second.space, len(second.extents))):
                return None
        first = _split_into(self.first, groups, second.extents)
        count = len(first.extents)
        order = [k for group in _filled(groups, self.first) for k in group]
        forms = {k: unit(place, count) for place, k in enumerate(order) if k is not None}
        body = moved_body(second.body, tuple([forms[k] for k in range(len(forms))]), count)
        if each_row:
            body = tuple([marked(s, True) if type(s) is Store else s for s in body])
        return first, Kernel(second.name, first.extents, first.space, body)


def _filled(groups: list[list[int]], first: Kernel) -> list[list[int | None]]:
    """Returns a group for each axis of the first kernel; [None] for one that the second lacks."""
    missing = len(first.extents) - len(groups)
    filled: list[list[int | None]] = [[*group] if group else [None] for group in groups]
    return filled + [[None]] * missing


def _groups(forms: Forms, extents: Sequence[int], wanted: Sequence[int]) -> list[list[int]] | None:
    """Returns, for each axis of the first, the axes of the second that make it up, outermost first;
    None where they do not."""
    found: list[list[int]] = []
    for form, extent in zip(forms, wanted, strict=False):
        axes = sorted([(-c, k) for k, c in enumerate(form.coefficients) if c])
        size = 1
        for step, k in reversed(axes):
            if step != -size:
                return None
            size *= extents[k]
        if size != extent or form.start or form.dynamic:
            return None
        found.append([k for _, k in axes])
    every = [k for group in found for k in group]
    return found if len(set(every)) == len(every) else None


def _split_into(kernel: Kernel, groups: list[list[int]], extents: Sequence[int]) -> Kernel:
    for k in reversed(range(len(groups))):
        sizes = [extents[each] for each in groups[k]]
        for place in reversed(range(1, len(sizes))):
            kernel = split_axis(kernel, k, sizes[place])
    return kernel


Parts = list[list[int]]


def common_parts(first: Sequence[int], second: Sequence[int]) -> tuple[Parts, Parts] | None:
    """Returns the common refinement of two ways to divide the same points into axes.

    For each axis of either, the extents of its parts, outermost first; None where there is no
    common refinement. Extents are above 1. (6, 4) and (3, 8) give [[3, 2], [4]] and [[3], [2, 4]].
    """
    parts: tuple[Parts, Parts] = ([[] for _ in first], [[] for _ in second])
    i = j = 0
    left = [*first, 0]
    right = [*second, 0]
    while i < len(first) and j < len(second):
        a, b = left[i], right[j]
        above, below = exact_quotient(a, b), exact_quotient(b, a)
        if above is not None:
            size, left[i], right[j] = b, above, 1
        elif below is not None:
            size, left[i], right[j] = a, 1, below
        else:
            return None
        parts[0][i].append(size)
        parts[1][j].append(size)
        i, j = i + (left[i] == 1), j + (right[j] == 1)
    return parts if i == len(first) and j == len(second) else None
