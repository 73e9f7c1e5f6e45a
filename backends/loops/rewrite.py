"""Rewriting of kernels: the change of axes and names that passes are made of.

Each function returns a kernel that computes the same over other axes: one split in two, one of a
single point dropped, all replaced by affine forms of new axes. Whether that is worth anything is
the passes' question. Spec: `specs/fusion.md`.

    split_axis(k, 0, 4):   b1[i0] = b0[2*i0]  for i0<12   ->   b1[4*i0 + i1] = b0[8*i0 + 2*i1]
                                                               for i0<3, i1<4
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

import attrs

from aotlite.backends.loops.analysis.affine import (
    Forms,
    as_scalar,
    composed,
    fixed,
    form_of,
    identity,
    unit,
)
from aotlite.backends.loops.analysis.size_proofs import exact_quotient
from aotlite.backends.loops.program import Kernel, Let, Reduce, Scan, Statement, Store, names_of
from aotlite.ir.dtypes import bool_
from aotlite.ir.scalar.expression import (
    Affine,
    Scalar,
    const,
    load,
    make,
    name,
    unknown,
    with_operands,
)
from aotlite.ir.scalar.primitives import COMPARISONS

OnScalar = Callable[[Scalar], Scalar]
OnAddress = Callable[[Affine], Affine]
Memo = dict[Scalar, Scalar]


# ------------------------------------------------------------------------------------- expressions
def moved(root: Scalar, forms: Forms, count: int, memo: Memo) -> Scalar:
    """Returns the expression with axis k replaced by `forms[k]`, a form of `count` axes."""
    for value in unknown(root, memo):
        memo[value] = _moved(value, forms, count, memo)
    return memo[root]


def _moved(value: Scalar, forms: Forms, count: int, memo: Memo) -> Scalar:
    if value.op == "axis":
        return as_scalar(forms[value.args[0]])
    if value.op == "load":
        buffer, address = value.args
        dynamic = tuple([(memo[each], step) for each, step in address.dynamic])
        address = attrs.evolve(address, dynamic=dynamic) if dynamic else address
        return load(buffer, composed(address, forms, count), value.dtype)
    same = with_operands(value, tuple([memo[operand] for operand in value.operands]))
    return _tidy(same, count) if same is not value and value.op in COMPARISONS else same


def _tidy(value: Scalar, count: int) -> Scalar:
    """Returns a comparison of affine forms with its constant on the right, or its truth value where
    no axis is left. Other comparisons stay."""
    left, right = [form_of(operand, count) for operand in value.args]
    if left is None or right is None or any(right.coefficients):
        return value
    bound = right.start - left.start
    if not any(left.coefficients):
        truth = _truth(value.op, bound)
        return value if truth is None else const(truth, bool_)
    return make(value.op, as_scalar(attrs.evolve(left, start=0)), bound)


def _truth(op: str, bound: int) -> bool | None:
    """Returns whether 0 has this relation to the bound; None where that depends on sizes."""
    found: object = _HOLDS[op](0, bound)
    return found if isinstance(found, bool) else None


_HOLDS: dict[str, Callable[[int, int], bool]] = {
    name: getattr(operator, name) for name in COMPARISONS
}


def replaced(root: Scalar, memo: Memo) -> Scalar:
    """Returns the expression with the keys of `memo` replaced by their values. Adds each scalar
    that it rebuilds to `memo`."""
    stack = [root]
    while stack:
        value = stack[-1]
        if value in memo:
            stack.pop()
            continue
        missing = [operand for operand in value.operands if operand not in memo]
        if missing:
            stack.extend(missing)
            continue
        memo[value] = with_operands(value, tuple([memo[each] for each in value.operands]))
        stack.pop()
    return memo[root]


# -------------------------------------------------------------------------------------- statements
def on_statement(statement: Statement, scalar: OnScalar, address: OnAddress) -> Statement:
    """Returns the statement with `scalar` applied to its expressions, and `address` to the address
    of a store, whose dynamic values `scalar` has changed already."""
    match statement:
        case Let(name=k, value=value):
            return Let(k, scalar(value))
        case Reduce(values=values):
            return attrs.evolve(statement, values=tuple(map(scalar, values)))
        case Scan(names=names, kind=kind, values=values):
            return Scan(names, kind, tuple(map(scalar, values)))
    into = statement.address
    if into.dynamic:
        into = Affine(
            into.coefficients, into.start, tuple([(scalar(v), step) for v, step in into.dynamic])
        )
    return Store(
        statement.buffer,
        address(into),
        scalar(statement.value),
        combine=statement.combine,
        each_row=statement.each_row,
        from_identity=statement.from_identity,
        unordered=statement.unordered,
    )


def unchanged(address: Affine) -> Affine:
    """Returns the address: for statements whose axes stay."""
    return address


def moved_body(body: Sequence[Statement], forms: Forms, count: int) -> tuple[Statement, ...]:
    """Returns the statements with axis k replaced by `forms[k]`, a form of `count` axes."""
    if len(forms) == count and forms == identity(count):
        return tuple(body)
    memo: Memo = {}

    def scalar(value: Scalar) -> Scalar:
        return moved(value, forms, count, memo)

    def address(value: Affine) -> Affine:
        return composed(value, forms, count)

    return tuple([on_statement(statement, scalar, address) for statement in body])


def replaced_body(body: Sequence[Statement], memo: Memo) -> tuple[Statement, ...]:
    """Returns the statements with the keys of `memo` replaced by their values."""
    if not memo:
        return tuple(body)

    def scalar(value: Scalar) -> Scalar:
        return replaced(value, memo)

    return tuple([on_statement(statement, scalar, unchanged) for statement in body])


# ----------------------------------------------------------------------------------------- kernels
def split_axis(kernel: Kernel, k: int, inner: int) -> Kernel:
    """Returns the kernel with axis k split in two. The inner one has the extent `inner`, which
    divides that of axis k."""
    count = len(kernel.extents) + 1
    forms = [unit(each + (each > k), count) for each in range(count - 1)]
    forms[k] = Affine(tuple([inner * (each == k) + (each == k + 1) for each in range(count)]))
    parts = _parts(kernel.extents[k], inner)
    extents = (*kernel.extents[:k], parts, inner, *kernel.extents[k + 1 :])
    body = moved_body(kernel.body, tuple(forms), count)
    return Kernel(kernel.name, extents, kernel.space + (k < kernel.space), body)


def _parts(extent: int, inner: int) -> int:
    """Returns the number of parts of an axis; exact, but for an axis that is no product."""
    exact = exact_quotient(extent, inner)
    return extent // inner if exact is None else exact


def restricted(kernel: Kernel, k: int, start: int, extent: int) -> Kernel:
    """Returns the kernel restricted to positions start to start + extent of axis k."""
    if start == 0 and extent == kernel.extents[k]:
        return kernel
    count = len(kernel.extents)
    forms = list(identity(count))
    forms[k] = Affine(forms[k].coefficients, start)
    extents = (*kernel.extents[:k], extent, *kernel.extents[k + 1 :])
    return Kernel(kernel.name, extents, kernel.space, moved_body(kernel.body, tuple(forms), count))


def without_lets(kernel: Kernel) -> Kernel:
    """Returns the kernel without `Let` statements: each name is replaced by its value."""
    if all(type(statement) is not Let for statement in kernel.body):
        return kernel
    memo: Memo = {}
    body: list[Statement] = []
    for statement in kernel.body:
        (changed,) = replaced_body([statement], memo)
        if type(changed) is Let:
            memo[name(changed.name, changed.value.dtype)] = changed.value
        else:
            body.append(changed)
    return attrs.evolve(kernel, body=tuple(body))


def without_unit_axes(kernel: Kernel) -> Kernel:
    """Returns the kernel without axes of one point. One inner axis stays if there is a reduction or
    scan."""
    if 1 not in kernel.extents:
        return kernel
    kept = [k for k, extent in enumerate(kernel.extents) if extent != 1]
    if all(k < kernel.space for k in kept) and any(
        type(statement) in (Reduce, Scan) for statement in kernel.body
    ):
        kept.append(len(kernel.extents) - 1)
    forms = [fixed(0, len(kept))] * len(kernel.extents)
    for place, k in enumerate(kept):
        forms[k] = unit(place, len(kept))
    body = moved_body(kernel.body, tuple(forms), len(kept))
    space = sum([k < kernel.space for k in kept])
    if space == len(kept):
        body = tuple([_unmarked(statement) for statement in body])
    return Kernel(kernel.name, tuple([kernel.extents[k] for k in kept]), space, body)


def _unmarked(statement: Statement) -> Statement:
    return marked(statement, False) if type(statement) is Store else statement


def marked(store: Store, each_row: bool) -> Store:
    """Returns the store with this mark `each_row`."""
    if store.each_row is each_row:
        return store
    return attrs.evolve(store, each_row=each_row)


def renumbered(body: Sequence[Statement], first: int) -> tuple[Statement, ...]:
    """Returns the statements with their names numbered from `first` on, so that they may follow
    another kernel's statements."""
    if not first or not free_name(body):
        return tuple(body)
    memo: Memo = {}
    numbers: dict[int, int] = {}
    result: list[Statement] = []
    for statement in body:
        (changed,) = replaced_body([statement], memo)
        match changed:
            case Let():
                raise AssertionError("lets are written out before")
            case Store():
                result.append(changed)
            case _:
                for k, value in zip(changed.names, changed.values, strict=True):
                    numbers[k] = first + len(numbers)
                    memo[name(k, value.dtype)] = name(numbers[k], value.dtype)
                own = tuple([numbers[k] for k in changed.names])
                result.append(attrs.evolve(changed, names=own))
    return tuple(result)


def free_name(body: Sequence[Statement]) -> int:
    """Returns the first number that no name of the statements has."""
    return 1 + max([k for statement in body for k in names_of(statement)], default=-1)
