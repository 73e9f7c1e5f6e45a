"""Training with blocks that the backward recomputes, with the same dropout masks.

`checkpoint` keeps the arguments of a block, and no value that the block computes. The compiled
backward graph has the ops of the blocks a second time. Losses are equal to the last bit, and far
fewer bytes are kept.
"""

import aotlite as al
from aotlite.inspect import saved_bytes

WIDTH, BLOCKS, STEPS = 32, 6, 5


class Block(al.nn.Module):
    """Widens the input, drops a tenth, narrows it again, and adds the input."""

    def __init__(self) -> None:
        super().__init__()
        self.up = al.nn.Linear(WIDTH, 4 * WIDTH)
        self.down = al.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: al.Tensor) -> al.Tensor:
        hidden = al.nn.functional.dropout(al.nn.functional.gelu(self.up(x)), 0.1)
        return x + self.down(hidden)


def losses(*, checkpointed: bool) -> tuple[list[float], int]:
    """The losses of a few steps, and the bytes that a step keeps for its backward."""
    al.manual_seed(0)
    blocks = al.nn.ModuleList([Block() for _ in range(BLOCKS)])
    optimizer = al.optim.SGD(blocks.parameters(), lr=0.05)
    x, target = al.randn(16, WIDTH), al.randn(16, WIDTH)

    @al.compile(backend="reference")
    def loss(x: al.Tensor, target: al.Tensor) -> al.Tensor:
        for block in blocks:
            x = al.checkpoint(block, x) if checkpointed else block(x)
        return ((x - target) ** 2).mean()

    found = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        value = loss(x, target)
        value.backward()
        optimizer.step()
        found.append(value.item())
    return found, saved_bytes(loss.partition)


def main() -> None:
    plain, kept = losses(checkpointed=False)
    again, few = losses(checkpointed=True)
    print(f"kept for the backward: {kept} bytes; with checkpoints: {few} bytes")
    print("equal losses:", plain == again, "- falling:", plain[-1] < plain[0])


if __name__ == "__main__":
    main()
