"""The functional mode: ops on stand-ins become pure ops on tensors outside.

`transform` runs a function in it, `functional_recorder` says what each op becomes, `memory` and
`input_memory` hold the values of what is written, and `view_program` makes the results.
Spec: `specs/functionalize_transform.md`.
"""
