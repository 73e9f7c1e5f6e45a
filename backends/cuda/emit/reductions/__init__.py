"""The template of kernels of rows, each of which a team of threads reduces. Spec:
`specs/cuda_printer.md`."""
