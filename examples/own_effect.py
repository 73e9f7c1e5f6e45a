"""An effect of your own: each call writes a journal exactly once, compiled or not.

The op is registered with `effect="journal"`. In compiled code it takes a token and returns the
next one, so no pass can drop it, repeat it or change its order.
"""

from collections import deque
from typing import Any

import aotlite as al
from aotlite.ir.effects import TokenOp
from aotlite.ir.op import Op

JOURNAL: deque[str] = deque()


def write(xp: Any, meta: Any, array: Any, tag: str) -> None:
    """Adds a line to the journal. The kernel gets a copy of the operand, as a NumPy array."""
    JOURNAL.append(f"{tag} {array.mean():.2f}")


record = al.register_op(
    "record(Tensor self, str tag) -> ()", kernel=write, vjp=None, effect="journal"
)


def loss(w: al.Tensor, x: al.Tensor) -> al.Tensor:
    hidden = (w * x).tanh()
    record(hidden, "hidden")
    hidden.register_hook(lambda grad: record(grad, "its gradient"))
    return (hidden * hidden).sum()


def step(function: Any) -> list[str]:
    """The lines that one forward and one backward write."""
    JOURNAL.clear()
    w = al.tensor([0.5, -1.0]).requires_grad_()
    function(w, al.tensor([1.0, 2.0])).backward()
    return list(JOURNAL)


def is_kept(op: Op) -> bool:
    """Whether an op takes or returns tokens."""
    return isinstance(op, TokenOp)


def main() -> None:
    compiled = al.compile(loss, partition="min_cut")
    eager, fused = step(loss), step(compiled)
    print("\n".join(eager))
    print("the same, compiled:", eager == fused == step(compiled))
    backward: Any = compiled.backward_graph
    print(backward.name, *[node.target.name for node in backward.calls if is_kept(node.target)])


if __name__ == "__main__":
    main()
