"""Floats that are those of each call.

    symfloat    `SymFloat`, an expression of float arguments, and what was asked about it

Spec: `specs/float_inputs.md`.
"""
