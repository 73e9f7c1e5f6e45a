"""The backend `cuda`: graphs become CUDA C++ kernels, compiled by NVRTC and launched by Python.

`passes` fuse a loop program for a GPU, `emit` prints CUDA C++, `execution` plans and launches it,
`driver` is the way to the device (CuPy, NVRTC, cuBLAS). Spec: `specs/cuda_backend.md`.
"""
