"""Freezing: what depends on fixed arguments alone is computed once, and again where they change.

    frozen_function    `FrozenFunction`: the callable, and the options of its compilation
    frozen_arguments   the fixed arguments as leading arguments of the compiled function
    module_state       parameters and buffers of Modules, as they are at each call
    folding_backend    between stage 9 and the backend: splits each forward, and runs its rest
    fold_graph         the split: the cone of frozen inputs, and the rest
    folded_values      the values of a fold graph, refolded op by op
    frozen_content     versions and digests of frozen tensors
    frozen_tensors     what ties these together, for one function
    erased_tensors     what stands in a module for discarded parameters
    report             what is folded, what is not, and why

Rules: FRZ-1 to FRZ-8. Spec: `specs/freezing.md`.
"""

from aotlite.freezing.frozen_function import FrozenFunction, frozen_function
from aotlite.freezing.report import FreezeReport

__all__ = ["FreezeReport", "FrozenFunction", "frozen_function"]
