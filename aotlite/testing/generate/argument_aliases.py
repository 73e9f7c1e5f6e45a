"""Random arguments of programs: tensors that share memory in a relation."""

from __future__ import annotations

from math import prod

import attrs

from aotlite.testing.generate.choices import DTYPES, Limits, Source
from aotlite.testing.programs.steps import Step

Shape = list[int]
HISTORIES = ("plain", "plain", "plain", "grown", "grown", "grown", "leaf")
"""`grown`: computed from a leaf that requires grad."""


@attrs.frozen
class Slot:
    """The shape and dtype of a wanted argument."""

    shape: Shape
    dtype: str = "float64"


@attrs.define
class Setup:
    """Draws the steps of a setup."""

    rng: Source
    dtypes: tuple[str, ...] = DTYPES
    """The dtypes of views in another dtype."""
    steps: list[Step] = attrs.field(factory=list)

    def do(self, op: str, *args: object) -> str:
        self.steps.append(Step(op, args))
        return f"${len(self.steps) - 1}"

    def chance(self, share: float) -> bool:
        return self.rng.chance(share)

    def fresh(self, shape: Shape, dtype: str, history: str) -> str:
        """A tensor on new memory."""
        if dtype in ("int64", "bool"):
            history = "plain"
        made = self.do("make", self.rng.randrange(7), shape, dtype, history != "plain")
        return self.do("mul", made, 1) if history == "grown" else made

    # --- one tensor
    def single(self, slot: Slot, history: str) -> str:
        """A tensor on new memory: all of it, or a view of a base that nothing else refers to."""
        shape, dtype = slot.shape, slot.dtype
        match self.rng.randrange(8):
            case 4 if len(shape) > 1:
                turned = self.fresh([shape[-1], *shape[1:-1], shape[0]], dtype, history)
                return self.do("transpose", turned, 0, -1)
            case 5:
                pairs = self.fresh([*shape, 2], dtype, history)
                return self.do("select", pairs, -1, self.rng.randrange(2))
            case 6:
                return self.window(self.flat(prod(shape) + 3, dtype, history), 2, shape)
            case 7:
                return self.do("detach", self.fresh(shape, dtype, history))
            case _:
                return self.fresh(shape, dtype, history)

    def expanded(self, slot: Slot, history: str) -> str:
        """A tensor with two elements at one address, if its shape allows it."""
        shape = slot.shape
        wide = [dim for dim, size in enumerate(shape) if size > 1]
        if len(wide) > 1 and self.chance(0.6):
            wide.pop()  # an innermost stride of 1 allows views of other dtypes
        if len(shape) > 1 and self.chance(0.25):
            line = self.flat(sum(shape) + 1, slot.dtype, history)
            return self.do("as_strided", line, shape, [1] * len(shape))
        chosen = self.rng.sample(wide, self.rng.randint(1, len(wide))) if wide else []
        narrow = [1 if dim in chosen else size for dim, size in enumerate(shape)]
        return self.do("expand", self.fresh(narrow, slot.dtype, history), shape)

    # --- windows of a flat base
    def flat(self, count: int, dtype: str, history: str) -> str:
        return self.fresh([count], dtype, history)

    def window(self, flat: str, start: int, shape: Shape) -> str:
        """The elements from `start` on as a view of this shape."""
        part = self.do("narrow", flat, 0, start, prod(shape))
        return part if len(shape) == 1 else self.do("view", part, shape)

    # --- several tensors on one memory
    def related(self, relation: str, slots: list[Slot], history: str) -> list[str]:
        """The tensors of `slots` on one memory, in this relation as far as shapes allow."""
        if relation == "expanded":
            first = self.expanded(slots[0], history)
            others = [first if self.chance(0.4) else self.alike(first, each) for each in slots[1:]]
            return [first, *others]
        if len(slots) == 1:
            return [self.single(slots[0], history)]
        return getattr(self, "_" + relation.replace(" ", "_"))(slots, history)

    def alike(self, source: str, slot: Slot) -> str:
        """Another tensor on a source's memory, of this shape if its size is the source's."""
        del slot
        return self.do("alias", source)

    def _same_object(self, slots: list[Slot], history: str) -> list[str]:
        return [self.single(slots[0], history)] * len(slots)

    def _base_and_view(self, slots: list[Slot], history: str) -> list[str]:
        whole = max(slots, key=lambda slot: prod(slot.shape))
        base = self.fresh(whole.shape, whole.dtype, history)
        found, is_there = [], False
        for slot in slots:
            if slot is whole and not is_there:
                found.append(base)
                is_there = True
            else:
                found.append(self._view_of(base, prod(whole.shape), slot))
        return found

    def _view_of(self, base: str, count: int, slot: Slot) -> str:
        """A view of a contiguous base of `count` elements."""
        if self.chance(0.15):
            return self.do("alias", base)
        flat = self.do("view", base, [count])
        return self.window(flat, self.rng.randint(0, count - prod(slot.shape)), slot.shape)

    def _overlapping_siblings(self, slots: list[Slot], history: str) -> list[str]:
        counts = [prod(slot.shape) for slot in slots]
        flat = self.flat(sum(counts) + 1, slots[0].dtype, history)
        middle = self.rng.randint(max(counts) - 1, max(counts)) if max(counts) else 0
        starts = [middle - self.rng.randint(0, max(n - 1, 0)) for n in counts]
        fitting = [min(max(s, 0), sum(counts) + 1 - n) for s, n in zip(starts, counts, strict=True)]
        return [self.window(flat, s, each.shape) for s, each in zip(fitting, slots, strict=True)]

    def _disjoint_siblings(self, slots: list[Slot], history: str) -> list[str]:
        counts = [prod(slot.shape) for slot in slots]
        dtype = slots[0].dtype
        if len(set(counts)) == 1 and self.chance(0.4):
            table = self.fresh([counts[0], len(slots)], dtype, history)
            columns = [self.do("select", table, 1, i) for i in range(len(slots))]
            pairs = zip(columns, slots, strict=True)
            return [self.do("view", column, each.shape) for column, each in pairs]
        flat = self.flat(sum(counts) + 2, dtype, history)
        starts = [sum(counts[:i]) + (i > 0) for i in range(len(slots))]
        return [self.window(flat, s, each.shape) for s, each in zip(starts, slots, strict=True)]

    def _detached_aliases(self, slots: list[Slot], history: str) -> list[str]:
        whole = max(slots, key=lambda slot: prod(slot.shape))
        count = prod(whole.shape)
        base = self.fresh(whole.shape, whole.dtype, history)
        found: list[str] = []
        for slot in slots:
            if slot is whole and not found:
                found.append(base)
                continue
            cut = self.do("hidden_alias" if self.chance(0.1) else "detach", base)
            same = slot.shape == whole.shape
            found.append(cut if same else self._view_of(cut, count, slot))
        return found

    def _other_dtype(self, slots: list[Slot], history: str) -> list[str]:
        first, second, *rest = slots
        dtype = first.dtype
        other = second.dtype
        if other == dtype:
            fits = OTHERS.get(dtype, ("int64", "complex128", "float32", "float64"))
            known = [each for each in fits if each in self.dtypes and each != dtype]
            other = self.rng.choice(known or [name for name in self.dtypes if name != dtype])
        counts = [prod(slot.shape) for slot in slots]
        flat = self.flat(2 * sum(counts) + 2 + sum(counts) % 2, dtype, history)
        seen = self.do("view_dtype", flat, other)
        found = [self.window(flat, 0, first.shape), self.window(seen, 0, second.shape)]
        return [*found, *[self.window(flat, counts[0], each.shape) for each in rest]]

    def _two_leaves(self, slots: list[Slot], history: str) -> list[str]:
        del history
        related = self.rng.choice([self._overlapping_siblings, self._disjoint_siblings])
        found = related(slots, "plain")
        for name, slot in list(zip(found, slots, strict=True))[:2]:
            if slot.dtype != "int64":
                self.do("requires_grad_", name)
        return found


OTHERS = {"complex128": ("float64",), "float32": ("float64", "int64")}
"""Dtype -> the dtypes of views of its memory, where not all dtypes fit."""


def arguments(
    rng: Source,
    relation: str,
    slots: list[Slot],
    extra: list[Slot],
    limits: Limits,
    history: str | None = None,
) -> tuple[list[Step], list[str]]:
    """The setup and arguments of a call: `slots` on one memory, each of `extra` on new memory."""
    setup = Setup(rng, limits.dtypes)
    args = setup.related(relation, slots, history or rng.choice(HISTORIES))
    args += [setup.single(slot, rng.choice(HISTORIES)) for slot in extra]
    return setup.steps, args
