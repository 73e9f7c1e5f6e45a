"""Code generation: a pure graph becomes Python, C or CUDA.

    reference  graph, interpreted -> straight-line Python              (bit for bit eager)
    loops      graph -> loop program -> fused loop program -> NumPy    (the C and CUDA oracle)
    cpu        the same fused loop program -> C -> shared library
    cuda       a loop program fused for a GPU -> CUDA C++ -> cubin, and launch code in Python
    auto       `cpu` or `cuda` by the graph's devices, else `reference`

Imports `aotlite.ir` and nothing above it. Always imported as `aotlite.backends`: under the name of
its folder every class would exist twice.
"""
