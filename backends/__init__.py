"""What a graph becomes: an instruction list, C or CUDA. Imports `aotlite.ir` and nothing above it.

Always imported as `aotlite.backends`: under the folder's own name every class would exist twice.
"""
