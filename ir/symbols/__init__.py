"""Symbolic integers: sizes that are unknown while a graph is traced.

symint        SymInt, SymBool: the arithmetic and comparisons that users of sizes see
table         SymbolTable: interns expressions, decides comparisons, logs assumptions
assumption    one logged answer
proofs        what follows for all values, from ranges and earlier assumptions
cases         runs a function so that only what its result needs is assumed
calls         `//`, `%`, `**`, max, min
python_number what takes a number's value: hashes of a user's dict, NumPy, bits
polynomial    polynomials over atoms, the lowest layer
user_code     whose code asks: to a user's a size is an int
events        every fact that a trace used
validation    proofs that guards imply these facts
sympy_forms   the two questions that sympy answers
"""
