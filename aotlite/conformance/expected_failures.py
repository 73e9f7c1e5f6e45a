"""The reason of each known breach of a library: one line, checked by hand.

The versions are those of `docs/conformance.md`. Reports print the line below the witness.
"""

from __future__ import annotations

NOTES: dict[str, dict[str, str]] = {
    "numpy": {
        "TEN-1e": "Documented: `as_strided` checks nothing, and reads memory past the end.",
        "TEN-7a": "No op checks whether its destination overlaps itself; the last write wins.",
        "TEN-8a": "The same: the order of the loop decides which write wins.",
    },
    "array-api-strict": {
        "COP-11": "It refuses unless memory is shared, and two empty arrays never share any.",
    },
    "jax": {
        "IDX-7b": "Documented: a gather clamps an index out of bounds.",
        "IDX-7c": "The same for an integer index.",
        "IMM-6": "`from_dlpack` shares memory at multiples of 64 bytes; NumPy can still write it.",
        "IMM-9": "Documented: an update out of bounds is dropped.",
        "CMP-3": "`jit` traces once: an outside array is a constant of the trace.",
        "CMP-4": "`jit` traces once: an outside number is a constant of the trace.",
    },
    "torch": {
        "TEN-8a": "Only a stride of 0 counts as an overlap of a tensor with itself.",
        "TEN-7d": "The overlap check gives up on strided tensors, and the op runs.",
        "TEN-7e": "The same: elements are read after they were written.",
        "TEN-7h": "The same: a row or column of a tensor is overwritten while it is read.",
        "MEM-1": "The same: a tensor times its own transpose, in place.",
        "OUT-3": "Reductions do not check whether `out` is a part of their input.",
        "OUT-4": "`matmul` does not check whether `out` is a factor.",
        "OUT-5": "Documented: `out` is resized, with a warning.",
        "IDX-7a": "Indices are checked one by one, while the others are written.",
        "EXC-5": "`from_numpy` of read-only memory warns, once in a process, and shares it.",
        "EXC-11": "`frombuffer` of `bytes` warns, once in a process, and shares it.",
        "TEN-22b": "The check runs after the write: it raises, but the bytes have changed.",
        "TEN-29b": "The backward of a view returns a view of its gradient, which the leaf stores.",
        "TEN-29c": "Two leaves store views of one gradient; adding to one in place adds to both.",
        "TEN-29d": "A leaf stores a view of the operand; `x.grad.zero_()` zeroes the operand too.",
        "TEN-31b": "Documented: saved intermediate values are constants to a second derivative.",
        "TEN-31c": "Two branches get one gradient tensor, without a copy or a check.",
        "FUN-9": "The inverse of `unfold` writes zeros between windows.",
        "FUN-12": "The written value is dense; `as_strided` past its end is refused.",
        "SYN-1": "With a history, two overlapping arguments that are both written do not compile.",
        "SYN-9": "The result is replayed on the synthetic base, as if that were the argument.",
        "DUP-5": "No guard checks that arguments share no memory: stale values, no error.",
        "FUN-8": "The write of an expanded tensor is compiled into sums of the differences.",
        "CMP-11": "A single window counts as windows that overlap, and its write is refused.",
        "CMP-12": "As RT-2: the value after the write is saved.",
        "FUN-23": "One write in the graph counts twice.",
        "FUN-19": "A write through `.data` is compiled into an ordinary one.",
        "RT-2": "The graph saves the value after the write, which the backward refuses.",
        "FUN-38": "The function's backward is lost silently; the result is another object.",
        "META-8": "A view of a custom view is replayed as plain views: a silent wrong gradient.",
        "GRD-1b": "The same: `x.mul_(w)` where only `w` requires a gradient has no backward.",
        "TAN-8": "A compiled backward is one graph: missing gradients of results are zeros.",
    },
}  # fmt: skip
"""Library -> rule -> reason."""


def note(library: str, rule: str) -> str:
    """Returns the reason of a breach; empty if none is known."""
    return NOTES.get(library, {}).get(rule, "")
