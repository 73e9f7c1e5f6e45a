"""A recorder for tests of the notifications of Modules and optimizers to a capture."""

from aotlite.stages.s1_capture.module_scopes import ModuleScopes


class Listener:
    """A recorder that writes down what it is told, and answers reads of `w` with "stand-in"."""

    def __init__(self):
        self.reads = []
        self.made = []
        self.scopes = ModuleScopes()

    def created(self, obj):
        self.made.append(obj)

    def is_created(self, obj):
        return any(obj is other for other in self.made)

    def read_attribute(self, obj, name, value):
        self.reads.append(name)
        return "stand-in" if name == "w" else value

    def refuse(self, what, advice):
        return RuntimeError(f"{what}; {advice}")
