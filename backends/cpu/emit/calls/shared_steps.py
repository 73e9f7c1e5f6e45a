"""Steps that share their C text with others: a kernel or product, printed once, on many buffers.

    run_k3(slots[4], slots[9], 0, 64);             a few of them: calls, as of any other kernel

    static const step run_0_steps0[] = {           many in a row: a table, since the time of a C
        {run_k3_on, 2}, /* relu_7 */               compiler grows with the calls in a function
        {run_k5_on, 3}, /* add_8 */ ... };
    static const place run_0_places0[] = {{4, 0}, {9, 0}, ...};      a slot, and bytes behind it
    run_steps(slots, runtime, run_0_steps0, 313, run_0_places0);

Spec: `specs/equal_regions.md`, REG-2, REG-3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

import attrs

from aotlite.backends.c_family.loop_geometry import LoopGeometry
from aotlite.backends.c_family.scalar_text import FunctionTexts
from aotlite.backends.cpu.emit.calls.kernel_calls import (
    CHUNKS_A_THREAD,
    most_chunks,
    nanoseconds_of_point,
    units_of,
)
from aotlite.backends.loops.program import Kernel

FEWEST = 24
"""The fewest shared steps in a row that become a table."""

Place = tuple[int, int]
"""A pointer: its slot, and the bytes behind it."""

SPREAD = f"""\
/* Runs a kernel that several steps share, on the pointers of one of them. */
static NEVER_INLINE void spread(
    const al_runtime *runtime, al_task task, void **own, i64 most)
{{
    i64 chunks = runtime->threads * {CHUNKS_A_THREAD};
    if (chunks > most) chunks = most;
    call c = {{own, runtime->threads > 1 ? chunks : 1}};
    if (c.chunks == 1) task(&c, 0);
    else runtime->parallel(task, &c, c.chunks);
}}"""
"""The C function that calls a shared kernel which takes long enough for several threads."""

RUN_STEPS = """\
typedef struct step { void (*run)(void **own, const al_runtime *runtime); i64 count; } step;
typedef struct place { i64 slot, bytes; } place;
/* Runs the steps of a table, each on its own pointers. */
static NEVER_INLINE void run_steps(
    void **slots, const al_runtime *runtime, const step *steps, i64 count, const place *places)
{
    for (i64 k = 0; k < count; ++k) {
        void *own[%d];
        for (i64 j = 0; j < steps[k].count; ++j, ++places)
            own[j] = (u8 *)slots[places->slot] + places->bytes;
        steps[k].run(own, runtime);
    }
}"""


@attrs.frozen
class SharedCall:
    """A step that runs shared text."""

    note: str
    """The name of the step."""
    function: str
    """The C function of a table."""
    body: str
    """The statement of that function."""
    places: tuple[Place, ...]
    lines: Callable[[], Sequence[str]]
    """Returns the call outside of tables."""


@attrs.frozen
class SharedKernel:
    """A printed kernel that several steps run, each on its own buffers."""

    name: str
    places: tuple[int, ...]
    """The number of each parameter's buffer in the kernel's template."""
    units: int
    most: int
    """The most chunks (`most_chunks`)."""
    points: int
    each: float
    """The estimated nanoseconds of a point."""

    @staticmethod
    def of(kernel: Kernel, name: str, loops: LoopGeometry, places: tuple[int, ...]) -> SharedKernel:
        """Returns the record of a kernel that is printed under this name."""
        units, together = units_of(loops)
        points, each = math.prod(kernel.extents), nanoseconds_of_point(kernel)
        most = most_chunks(units, points * each)
        return SharedKernel(name, places, units * together, most, points, each)

    def call(
        self, note: str, places: Sequence[Place], pointers: Callable[[], Sequence[str]]
    ) -> SharedCall:
        """Returns the call of a step on pointers, in the order of `places`, which are these."""
        run = f"spread(runtime, {self.name}_task, own, {self.most});"
        if self.most < 2:
            own = ", ".join([f"own[{k}]" for k in range(len(places))])
            run = f"{self.name}({own}, 0, {self.units});"

        def lines() -> Sequence[str]:
            given = ", ".join(pointers())
            if self.most > 1:
                return ["{", f"void *own[] = {{{given}}};", run, "}"]
            return [f"{self.name}({given}, 0, {self.units});"]

        return SharedCall(note, f"{self.name}_on", run, tuple(places), lines)


@attrs.define
class Alike:
    """The steps of a program whose kernels have one template and one layout of memory."""

    steps: list[int] = attrs.field(factory=list)
    printed: SharedKernel | None = None


class SharedSteps:
    """The tables of a program, and the functions that they name."""

    def __init__(self, library: FunctionTexts) -> None:
        self.library = library
        self.functions: dict[str, str] = {}
        self.tables: list[str] = []

    def called(self, calls: Iterable[str | SharedCall], stem: str) -> list[str]:
        """Returns the lines of a function with these calls, and keeps the tables that they need."""
        lines: list[str] = []
        for is_shared, group in groupby(calls, lambda each: isinstance(each, SharedCall)):
            steps = [each for each in group if isinstance(each, SharedCall)] if is_shared else []
            if len(steps) < FEWEST:
                for each in steps or group:
                    lines += (
                        [each] if isinstance(each, str) else [f"/* {each.note} */", *each.lines()]
                    )
            else:
                lines.append(self._table(steps, f"{stem}_steps{len(lines)}"))
        return lines

    def _table(self, steps: Sequence[SharedCall], name: str) -> str:
        self.functions.update({each.function: each.body for each in steps})
        most = max([len(each.places) for each in steps])
        self.library.pointers = max(self.library.pointers, most)
        rows = [f"{{{each.function}, {len(each.places)}}}, /* {each.note} */" for each in steps]
        places = [
            " ".join([f"{{{slot}, {count}}}," for slot, count in each.places]) for each in steps
        ]
        self.tables += [f"static const step {name}[] = {{", *rows, "};"]
        self.tables += [f"static const place {name}_places[] = {{", *places, "};"]
        return f"run_steps(slots, runtime, {name}, {len(steps)}, {name}_places);"

    def text(self) -> list[str]:
        """Returns the lines before the functions that run tables."""
        lines = list[str]()
        for function, body in self.functions.items():
            head = f"static void {function}(void **own, const al_runtime *runtime)"
            lines += [head, "{", body, "}"]
        return [*lines, *self.tables]
