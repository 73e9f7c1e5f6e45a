"""The images of a call: its flat arguments, their containers, the memory they share, the modes.

Rules: CACHE-7, CACHE-10. Spec: `specs/artifacts.md`.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from aotlite import cuda
from aotlite.artifacts.reads.function_names import own_package
from aotlite.artifacts.reads.value_images import Images, facts_words
from aotlite.autograd.multithreading import is_multithreading_enabled
from aotlite.backends import threads
from aotlite.eager.base import modes
from aotlite.eager.base.modes import STATE
from aotlite.eager.base.tape.view_chain import ViewChain
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.creation.dtype_queries import get_default_dtype
from aotlite.eager.rng import generator
from aotlite.eager.storage_overlap import first_byte, foreign_distances, on_one_storage
from aotlite.pipeline.logs.log_options import set_logs
from aotlite.stages.records.base import chain_text
from aotlite.stages.s1_capture.environment.access_search import is_users

Line = tuple[str, str]
"""What was read, and its image."""


def argument_lines(
    images: Images, form: Any, leaves: Sequence[object], sized: Collection[int] = ()
) -> Iterator[tuple[Line, object]]:
    """The containers of a call and its flat arguments; with each line the argument it is of. Of
    those in `sized` no size counts."""
    spec, orders, arrays = form
    yield ("the containers of the arguments", _spec_words(images, spec) + repr(arrays)), None
    yield ("the keys of dictionaries among the arguments", images.of(orders)), None
    for index, leaf in enumerate(leaves):
        image = images.of_sized(leaf) if index in sized else images.of(leaf)
        yield (f"argument {index}", image), leaf


def _spec_words(images: Images, spec: Any) -> str:
    kind = spec.type
    if kind is None:
        return "*"
    inside = ", ".join([_spec_words(images, each) for each in spec.children()])
    name = "" if kind in (list, tuple, dict) else images.of(kind)
    return f"{name}{spec.kind.name.lower()}({inside})"


def mode_lines() -> Iterator[Line]:
    """The modes of the thread that a compilation reads."""
    yield "grad mode", str(STATE.grad_mode)
    pack = STATE.watch is not None and STATE.watch.pack is not None
    yield "saved-tensor hooks", "on" if pack else "off"
    forbidden = STATE.watch is not None and STATE.watch.forbidden is not None
    yield "saved-tensor hooks are forbidden", str(forbidden)
    yield "a checkpointed region", str(STATE.in_region)


STATES: Mapping[str, Callable[[], object]] = {
    "get_num_threads": threads.get_num_threads,
    "get_default_dtype": get_default_dtype,
    "is_grad_enabled": modes.is_grad_enabled,
    "is_inference_mode_enabled": modes.is_inference_mode_enabled,
    "is_anomaly_enabled": modes.is_anomaly_enabled,
    "is_multithreading_enabled": is_multithreading_enabled,
}
"""Questions for what the whole process or thread has set: their answers are reads."""
UNKEPT: Mapping[Any, str] = {
    each: each.__name__
    for each in (
        *(threads.set_num_threads, generator.manual_seed, generator.initial_seed),
        *(generator.get_rng_state, generator.set_rng_state, set_logs),
        *(cuda.current_device, cuda.device_count, cuda.get_device_capability, cuda.is_available),
        *(cuda.get_device_name, cuda.get_device_properties, cuda.mem_get_info, cuda.set_device),
        *(cuda.memory_allocated, cuda.memory_reserved, cuda.current_stream, cuda.manual_seed),
        *(cuda.manual_seed_all, cuda.why_unavailable, cuda.synchronize),
        *(generator.Generator.manual_seed, generator.Generator.set_state),
        *(generator.Generator.initial_seed, generator.Generator.get_state),
    )
}
"""Functions that set such a state, or ask for one of a machine, or that a call changes."""


def state_lines(names: Sequence[str]) -> Iterator[Line]:
    """The answers of these questions now."""
    for name in names:
        yield f"{name}()", repr(STATES[name]())


def setting_line(images: Images) -> Line:
    """What users set in NumPy: how it prints arrays, and what it does on errors."""
    return "settings of NumPy", images.of((np.get_printoptions(), np.geterr(), np.getbufsize()))


def library_line(images: Images, names: Collection[str] | None) -> Line:
    """The values that are attributes of `numpy` and `aotlite`, and of those of their modules that
    have a name among `names`, under these names (None for all): a user may have set them."""
    found: dict[str, object] = {}
    waiting, seen = [np, own_package()], set[str]()
    while waiting:
        library = waiting.pop(0)
        held = vars(library)
        for name in sorted(held if names is None else held.keys() & names):
            value = held[name]
            if isinstance(value, types.ModuleType):
                if names is not None and not is_users(value) and value.__name__ not in seen:
                    seen.add(value.__name__)
                    waiting.append(value)
            elif _is_set(name, value):
                found[f"{library.__name__}.{name}"] = value
    return "values of libraries", images.of(found)


_VALUES = (
    *(bool, int, float, complex, str, bytes, tuple, list, dict, set, frozenset),
    *(np.ndarray, np.generic),
)
_OWN = ("ScalarType", "sctypeDict", "typecodes")
"""NumPy's tables of dtypes, to which packages add."""


def _is_set(name: str, value: object) -> bool:
    """Whether an attribute of a library is a value, or code of a user."""
    if name.startswith("_") or name in _OWN:
        return False
    is_code = isinstance(value, (type, types.FunctionType))
    return isinstance(value, _VALUES) or is_users(value if is_code else type(value))  # type: ignore[arg-type]


def memory_lines(
    tensors: Mapping[str, Tensor], offsets: Sequence[str], sized: Collection[str] = ()
) -> Iterator[Line]:
    """How the inputs of a graph lie in memory, by the names of their roles. The views through which
    those in `sized` are seen count without their numbers."""
    names, given = list(tensors), list(tensors.values())
    shared = []
    for group in on_one_storage(given):
        if len(group) > 1:
            start = first_byte(given[group[0]])
            shared.append([(names[k], first_byte(given[k]) - start) for k in group])
    yield "the memory that inputs share", repr(shared)
    yield "the memory that ndarrays share", repr(foreign_distances(given))
    yield "the inputs that are views of one base", repr(_families(tensors))
    for name, tensor in tensors.items():
        words = _memory_words(tensor, read=name in offsets, sized=name in sized)
        yield f"the memory of {name}", words


def _memory_words(tensor: Tensor, *, read: bool, sized: bool) -> str:
    storage, chain = tensor.storage, tensor._chain
    seen = " ".join([step.op.name for step in chain]) if sized else _chain_words(chain)
    words = [
        "writable" if storage.writable else "read-only",
        "shared with NumPy" if storage.exported else "its own",
        "no view" if tensor._base is None else f"a view {seen}",
    ]
    if read:
        words.append(f"from element {tensor.offset} of {storage.nbytes()} bytes")
    return ", ".join(words)


def _chain_words(chain: ViewChain) -> str:
    return f"{chain_text(chain)} of {chain[0].operand if chain else 'itself'}"


def _families(tensors: Mapping[str, Tensor]) -> list[list[str]]:
    families: dict[int, list[str]] = {}
    for name, tensor in tensors.items():
        if tensor._root is not None and tensor._base is not None:
            families.setdefault(id(tensor._root), []).append(name)
    for name, tensor in tensors.items():
        if tensor._root is not None and tensor._base is None and id(tensor._root) in families:
            families[id(tensor._root)].append(name)
    return sorted(families.values())


def hidden_line(name: str, value: object) -> Line:
    """The facts of a hidden input."""
    return f"the tensor {name}", facts_words(value) if isinstance(value, Tensor) else "no tensor"
