"""The outside values that random functions may read, and the ways in which users change them."""

from __future__ import annotations

NET = """\
class Net(nn.Module):
    def __init__(self):
        self.weight = nn.Parameter(T(1, 2, 2))
        self.bias = nn.Parameter(T(2, 2))
        self.count = nn.Buffer(T(3))
        self.parts = [T(4, 2), {'deep': T(5, 2, grad=True)}]
        self.scale = 2.0
        self.double = False
"""
OUTSIDE = {
    "w": ("w = T(11, 2, 2, grad=True)", ("w",), ()),
    "u": ("u = T(12, 2)", ("u",), ()),
    "s": ("s = T(13)", ("s",), ()),
    "box": ("box = {'k': [T(14, 2), T(15, 2, 2, grad=True)], 'n': 3}",
            ("box['k'][0]", "box['k'][1]"), ("box['n']",)),
    "net": (NET + "net = Net()",
            ("net.weight", "net.bias", "net.count", "net.parts[0]", "net.parts[1]['deep']"),
            ("net.scale", "net.double")),
    "factor": ("factor = 2", (), ("factor",)),
}  # fmt: skip
"""Name: its statement, and what of it are tensors and plain values."""

REBINDING = {
    "w": ["w = T(21, 2, 2, grad=True)", "w = w.detach()", "w = T(22, 3, 3)",
          "w.grad = None"],
    "u": ["u = T(23, 2)", "u = T(24, 2, grad=True)", "u.mul_(2)"],
    "s": ["s = T(25)", "s.add_(1)"],
    "box": ["box['k'][0] = T(26, 2)", "box['n'] = 4", "box['k'].append(1)",
            "box['k'][0] = box['k'][1][0]", "box['k'].reverse()"],
    "net": ["net.scale = 3.0", "net.double = True", "net.weight.grad = None",
            "net.weight = nn.Parameter(T(27, 2, 2))", "net.parts[0] = T(28, 2)",
            "net.count.add_(1)", "net.bias.requires_grad_(False)",
            "with al.no_grad():\n    net.weight.mul_(0.5)"],
    "factor": ["factor = 3", "factor = 2.0", "factor = True"],
}  # fmt: skip
"""Name -> the user's changes between calls."""
