"""Floats that are those of each call.

    symfloat            `SymFloat`, an expression of float arguments, and what was asked about it
    size_float          `SizeFloat`, an expression of sizes
    size_expressions    makes such expressions, and ints of them
    operations          the functions of numbers in them
    python_functions    `math`, `int` and `float` for code that runs on symbols
    call_code           code that calls others in the place of `int` and `float`

Spec: `specs/float_inputs.md`.
"""
