"""Programs of views and writes as plain data.

    steps        `Step`, `Call`, `ProgramData`: the language, described in its docstring
    vocabulary   the ops of views and writes, by kind
    numbers      the numbers in tensors
    program      `Program`: the data with the methods that run and print it

Place: `program` is above `engines`, `observe` and `scripts`; the other three are below them.
"""
