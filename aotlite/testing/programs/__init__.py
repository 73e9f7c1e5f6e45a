"""Programs of views and writes as plain data.

    steps        `Step`, `Call`, `ProgramData`: the language, which its docstring describes
    vocabulary   the ops of views and writes, by kind
    numbers      the numbers that tensors are made of
    program      `Program`: the data with the methods that run and print it

Place: `program` is above `engines`, `observe` and `scripts`; the other three are below them.
"""
