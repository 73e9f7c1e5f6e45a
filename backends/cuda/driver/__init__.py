"""The way to a CUDA device: protocol, CuPy, NVRTC, cuBLAS. Spec: `specs/cuda_backend.md`."""
