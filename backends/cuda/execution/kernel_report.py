"""What a graph was compiled to for a GPU, for those who want to see it.

Shown to observers as `9 lower, forward_kernels`. Spec: `specs/cuda_backend.md`.
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
    """Loops and text, and how they are launched."""

    plan: LaunchPlan
    target: Target
    flags: tuple[str, ...] = ()

    def resources(self) -> Mapping[str, object]:
        """What each kernel uses of a multiprocessor, as the compiler says.

        Compiles the text anew. Raises MissingExtraError where NVRTC is not installed.
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
