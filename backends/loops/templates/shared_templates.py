"""Kernels that know their template, and passes that are made once for equal kernels.

A kernel of an op that is lowered again has the template of the first one, and its own buffers. It
carries both, and its statements are written only if somebody reads them. What a pass makes of a
template is kept there, and is put on the buffers of the next kernel without looking at statements:

    merged(exp_7, mul_8)       exp of (3) -> (4), mul of (4, 1) -> (5)    made by `merged`
    merged(exp_20, mul_21)     exp of (9) -> (21), mul of (21, 1) -> (22) its template on (9, 1, 22)

Two calls are equal if the templates are, all other arguments, which kernels have which buffers in
common, and the order of the buffers' numbers. Spec: `specs/equal_regions.md`, REG-8.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import attrs

from aotlite.backends.loops.program import Kernel, Statement, loaded, reads, stored
from aotlite.backends.loops.templates.kernel_template import (
    KernelInstance,
    buffers_of,
    instance_of,
    renamed_body,
)

T = TypeVar("T")
Buffers = tuple[int, ...]


@attrs.define(eq=False)
class SharedTemplate:
    """What kernels share that are equal on other buffers: the first of them."""

    kernel: Kernel
    buffers: Buffers
    """Those of `kernel`, each once."""
    known: dict[Hashable, Any] = attrs.field(factory=dict)
    """What passes found out about it and made of it."""
    loaded: Buffers = attrs.field(init=False)
    """The places among `buffers` of each load's buffer, as `program.loaded` has them."""
    stored: Buffers = attrs.field(init=False)
    read: Buffers = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        kernel = self.kernel
        places = {number: place for place, number in enumerate(self.buffers)}
        self.loaded, self.stored, self.read = [
            tuple([places[number] for number in numbers])
            for numbers in (loaded(kernel), stored(kernel), reads(kernel))
        ]

    def body_on(self, buffers: Buffers) -> tuple[Statement, ...]:
        """Returns the statements of the kernel that has these buffers."""
        if buffers == self.buffers:
            return self.kernel.body
        return renamed_body(self.kernel.body, dict(zip(self.buffers, buffers, strict=True)))

    def of(self, question: Callable[..., T], *arguments: Hashable) -> T:
        """Returns what a function says about all kernels of this template, whatever their buffers
        are. It is asked once."""
        key = (question, *arguments)
        if key not in self.known:
            self.known[key] = question(self.kernel, *arguments)
        found: T = self.known[key]
        return found

    def places(self, question: Callable[..., Sequence[int]], *arguments: Hashable) -> Buffers:
        """Returns the places, among a kernel's buffers, of those that a function names."""
        key = (question, *arguments)
        if key not in self.known:
            named = question(self.kernel, *arguments)
            self.known[key] = tuple(map(self.buffers.index, named))
        found: Buffers = self.known[key]
        return found


@attrs.frozen
class MadeKernel:
    """The template of a kernel that a pass has made, and the places of its buffers among those that
    the pass was given."""

    template: SharedTemplate
    places: Buffers

    def on(self, buffers: Buffers, name: str) -> Kernel:
        """Returns the kernel for a call on these buffers."""
        return kernel_on(self.template, tuple([buffers[k] for k in self.places]), name)


# ----------------------------------------------------------------------------------------- kernels
def kernel_on(template: SharedTemplate, buffers: Buffers, name: str) -> Kernel:
    """Returns the kernel of a template on these buffers. Its statements are written when somebody
    reads them."""
    first = template.kernel
    return Kernel.later(name, first.extents, first.space, first.vector, (template, buffers))


def share(kernel: Kernel) -> tuple[SharedTemplate, Buffers]:
    """Returns the template of a kernel, and its buffers. A kernel that knows none becomes the first
    one of a new template."""
    if kernel.shared is None:
        own = buffers_of(kernel)
        object.__setattr__(kernel, "shared", (SharedTemplate(kernel, own), own))
    found: tuple[SharedTemplate, Buffers] = kernel.shared
    return found


def known_instance(kernel: Kernel) -> KernelInstance:
    """Returns `instance_of(kernel)`, which is found once for kernels that share a template."""
    template, buffers = share(kernel)
    return KernelInstance(template.of(_numbered), buffers)


def _numbered(kernel: Kernel) -> Kernel:
    return instance_of(kernel).template


def about(kernel: Kernel, question: Callable[..., T], *arguments: Hashable) -> T:
    """Returns `question(kernel, *arguments)`, which does not depend on the numbers of buffers."""
    if kernel.shared is None:
        return question(kernel, *arguments)
    template: SharedTemplate = kernel.shared[0]
    return template.of(question, *arguments)


# ------------------------------------------------------------------------------------------ passes
def changed(make: Callable[..., Kernel], kernel: Kernel, *arguments: Hashable) -> Kernel:
    """Returns `make(kernel, *arguments)`, which has the same name. It is made once for each
    template."""
    if kernel.shared is None:
        return make(kernel, *arguments)
    template, buffers = kernel.shared
    key = (make, pattern(buffers), *arguments)
    found = template.known.get(key)
    if found is None:
        result = make(kernel, *arguments)
        template.known[key] = _SAME if result is kernel else made(result, buffers)
        return result
    return kernel if found is _SAME else found.on(buffers, kernel.name)


def combined(
    make: Callable[..., Kernel | None],
    kernels: tuple[Kernel, ...],
    name: str,
    *arguments: Hashable,
) -> Kernel | None:
    """Returns `make(*kernels, *arguments)`, a kernel of this name, or None. It is made once for
    each tuple of templates on buffers of one pattern."""
    if any(each.shared is None for each in kernels):
        return make(*kernels, *arguments)
    buffers: Buffers = sum([each.shared[1] for each in kernels], ())
    known = kernels[0].shared[0].known
    others = [each.shared[0] for each in kernels[1:]]
    key = (make, pattern(buffers), *others, *arguments)
    if key not in known:
        kernel = make(*kernels, *arguments)
        known[key] = None if kernel is None else made(kernel, buffers)
        return kernel
    found: MadeKernel | None = known[key]
    return None if found is None else found.on(buffers, name)


def made(kernel: Kernel, buffers: Buffers) -> MadeKernel:
    """Returns the record of a kernel that was made from kernels with these buffers."""
    template, own = share(kernel)
    return MadeKernel(template, tuple(map(buffers.index, own)))


def pattern(buffers: Buffers) -> Buffers:
    """Returns each buffer's place in the order of their numbers: which of them are equal, and which
    is the greater one."""
    if len(buffers) < 3:
        return (
            (0,)
            if len(buffers) < 2
            else _OF_TWO[(buffers[0] > buffers[1]) - (buffers[0] < buffers[1])]
        )
    ranks = {buffer: k for k, buffer in enumerate(sorted(set(buffers)))}
    return tuple([ranks[buffer] for buffer in buffers])


_SAME = "the kernel itself"
_OF_TWO = {-1: (0, 1), 0: (0, 0), 1: (1, 0)}
