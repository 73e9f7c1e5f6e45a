"""The report on a graph compiled for a GPU: loops, text, grids and resources.

Observers get it as `9 lower, forward_kernels`. Spec: `specs/cuda_backend.md`.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from aotlite.backends.cuda.driver.kernel_resources import compile_without_spills
from aotlite.backends.cuda.execution.launch_plan import LaunchPlan
from aotlite.backends.cuda.target import Target
from aotlite.backends.loops.program_run import Kernels


@attrs.frozen(eq=False, slots=False, kw_only=True)
class CudaKernels(Kernels):
    """The loops and the text of a graph, with its launches."""

    plan: LaunchPlan
    target: Target
    flags: tuple[str, ...] = ()

    def resources(self) -> Mapping[str, object]:
        """Returns the registers and memory of each kernel, from the compiler's log.

        It compiles the text anew. Raises MissingExtraError if NVRTC is not installed.
        """
        return compile_without_spills(self.text, self.target, self.flags)[1]

    def __str__(self) -> str:
        plan = self.plan
        grids = [
            f"{each.name}: {each.blocks} blocks of {each.threads} threads"
            + (f", {each.shared} bytes shared" if each.shared else "")
            for each in plan.printed.launches
        ]
        others = len(plan.actions) - len(grids) - plan.waits
        counts = f"{len(grids)} launches, {others} other steps, {plan.waits} waits"
        facts = f"{counts}, {plan.arena} bytes of temporaries, for {self.target.architecture}"
        return "\n\n".join([super().__str__(), "\n".join([facts, *grids])])
