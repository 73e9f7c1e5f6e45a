"""The reason of each known breach of a library: one line, checked by hand.

Versions are those of `docs/conformance.md`. Reports print the line below the witness.
"""

from __future__ import annotations

NOTES: dict[str, dict[str, str]] = {
    "numpy": {
        "TEN-1e": "`as_strided` is documented to check nothing; what is read is foreign memory.",
        "TEN-7a": "No op looks whether its destination overlaps itself; the last write wins.",
        "TEN-8a": "The same: which write wins is left to the order of the loop.",
    },
    "array-api-strict": {
        "COP-11": "It asks whether memory is shared, which two empty arrays never do, and refuses.",
    },
    "jax": {
        "IDX-7b": "Documented: a gather outside takes the nearest place (the last one).",
        "IDX-7c": "The same for an integer index.",
        "IMM-6": "`from_dlpack` shares memory at multiples of 64 bytes; NumPy goes on writing it.",
        "IMM-9": "Documented: an update outside is dropped.",
        "CMP-3": "`jit` traces once: an array that is no argument is a constant from then on.",
        "CMP-4": "`jit` traces once: a number that is no argument is a constant from then on.",
    },
    "torch": {
        "TEN-8a": "Only a stride of 0 counts as an overlap of a tensor with itself.",
        "TEN-7d": "Whether strided tensors overlap counts as too hard to tell; the op goes ahead.",
        "TEN-7e": "The same: elements are read after they were written.",
        "TEN-7h": "The same: a row or column of a tensor is overwritten while it is read.",
        "MEM-1": "The same: a tensor times its own transpose, in place.",
        "OUT-3": "Reductions do not look whether `out` is a part of their input.",
        "OUT-4": "`matmul` does not look whether `out` is a factor.",
        "OUT-5": "Documented: `out` is resized, with a warning.",
        "IDX-7a": "Indices are checked one by one, while the others are written.",
        "EXC-5": "`from_numpy` of read-only memory warns, once in a process, and shares it.",
        "EXC-11": "`frombuffer` of `bytes` warns, once in a process, and shares it.",
        "TEN-22b": "The check comes after the write: the error is raised, the bytes are changed.",
        "TEN-29b": "A view's backward gives a view of the gradient given, which a leaf adopts.",
        "TEN-29c": "Two leaves adopt views of one gradient; adding to one in place adds to both.",
        "TEN-29d": "A leaf adopts a view of the operand; `x.grad.zero_()` zeroes the operand too.",
        "TEN-31b": "Documented: saved inner values are constants to a second derivative.",
        "TEN-31c": "Gradients are handed on without a copy or a check; a branch may get another's.",
        "FUN-9": "The inverse of `unfold` puts zeros where no window lies.",
        "FUN-12": "The written value is dense; `as_strided` past its end is refused.",
        "SYN-1": "With a history, two overlapping arguments that are both written do not compile.",
        "SYN-9": "The result is taken of the common base, as if it were the argument.",
        "DUP-5": "No guard says that arguments stay apart: stale values, and no error.",
        "FUN-8": "The write of an expanded tensor is compiled into sums of the differences.",
        "CMP-11": "A single window counts as windows that overlap, and its write is refused.",
        "CMP-12": "As RT-2: the value after the write is what is saved.",
        "FUN-23": "One write in the graph counts twice.",
        "FUN-19": "A write through `.data` is compiled into an ordinary one.",
        "RT-2": "The value after the write is what is saved, so that the backward refuses it.",
        "FUN-38": "The function's backward is lost, silently; the result is another object.",
        "META-8": "A view of a custom view is replayed as plain views: a silent wrong gradient.",
        "GRD-1b": "The same: `x.mul_(w)` where only `w` requires a gradient has no backward.",
        "TAN-8": "A compiled backward is one graph: gradients that do not arrive are zeros.",
    },
}  # fmt: skip
"""Library -> rule -> reason."""


def note(library: str, rule: str) -> str:
    """Returns the line about a breach; empty if none is known."""
    return NOTES.get(library, {}).get(rule, "")
