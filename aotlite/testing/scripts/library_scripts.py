"""Files for libraries that are not aotlite: `Program.to_numpy` and `Program.to_torch`."""

from __future__ import annotations

from collections.abc import Iterator

from aotlite.testing.programs.steps import ProgramData, is_name
from aotlite.testing.scripts.block import origin
from aotlite.testing.scripts.files import function_text, inputs_name, inputs_text
from aotlite.testing.scripts.language import Name, TorchLanguage
from aotlite.testing.scripts.numpy_language import NumPyLanguage, rebound, unsupported

SHOW_ARRAYS = '''\
def show(args, results):
    """Prints the arrays after a call, and which of them share memory."""
    named = {f"argument {i}": value for i, value in enumerate(args)}
    named |= {f"result {i}": value for i, value in enumerate(results)}
    for name, value in named.items():
        print(f"{name}: {value.tolist() if isinstance(value, np.ndarray) else value}")
        for other, another in named.items():
            if other == name:
                break
            if isinstance(value, np.ndarray) and isinstance(another, np.ndarray):
                if np.shares_memory(value, another):
                    print(f"    shares memory with {other}")'''

PLAY = '''\
def attempt(action, *args):
    """Does something, or prints the error."""
    try:
        action(*args)
    except RuntimeError as error:
        print(f"{type(error).__name__}: {error}")


def show_gradient(value):
    """Prints the gradient of a leaf that has one."""
    if value.grad_fn is None and value.grad is not None:
        print(f"gradient {value.grad.tolist()}")


def play(function, inputs, grad=True, write=None):
    """Prints what can be seen after a call, a backward and a write."""
    args, also = inputs()
    with torch.set_grad_enabled(grad):
        results = function(*args)
    tensors = [value for value in results if isinstance(value, torch.Tensor)]
    tracked = [tensor for tensor in tensors if tensor.requires_grad]
    if tracked:
        attempt(torch.autograd.backward, tracked, [torch.ones_like(each) for each in tracked])
    if write and tensors:
        with torch.no_grad():
            attempt(getattr(tensors[write[0] % len(tensors)], write[1]), 2)
    for name, values in (("argument", args), ("result", results), ("also", also)):
        for i, value in enumerate(values):
            if not isinstance(value, torch.Tensor):
                print(f"{name} {i}: {value}")
                continue
            print(f"{name} {i}: {value.detach().tolist()}")
            print(f"    strides {value.stride()}, offset {value.storage_offset()}")
            print(f"    {value._version} writes, memory {value.untyped_storage()._cdata}")
            print(f"    requires grad {value.requires_grad}")
    for value in (*args, *also):
        attempt(show_gradient, value)'''


def numpy_file(program: ProgramData) -> str:
    """Returns a file that runs the same steps in NumPy, and prints values and shared memory.

    Raises `UnsupportedError`, which names the step, for a step that arrays lack.
    """
    _refuse_two_names(program)
    language = NumPyLanguage()
    parts = [inputs_text(program, i, language, pair=False) for i in range(len(program.calls))]
    parts.append(function_text(program, language))
    calls = [line for i in range(len(program.calls)) for line in _numpy_call(program, i)]
    return (
        "\n\n\n".join(
            [language.imports(), *language.sources(), *parts, SHOW_ARRAYS, "\n".join(calls)]
        )
        + "\n"
    )


def _numpy_call(program: ProgramData, number: int) -> Iterator[str]:
    yield f"args = {inputs_name(number)}()"
    yield "results = f(*args)"
    yield "show(args, results)"
    tensors = [i for i, value in enumerate(program.results) if is_name(value)]
    write = program.calls[number].write
    if write is not None and tensors:
        place, op = write
        target = Name(f"results[{tensors[place % len(tensors)]}]")
        yield "try:"
        yield "    " + NumPyLanguage().inplace(op, (target, 2))
        yield "except TypeError as error:"
        yield "    print(error)"
        yield "show(args, results)"


def _refuse_two_names(program: ProgramData) -> None:
    """Raises `UnsupportedError` if an object with several names changes its geometry.

    In NumPy the change binds one name to another array.
    """
    steps = [*rebound(program.body), *[s for c in program.calls for s in rebound(c.setup)]]
    for call in program.calls:
        given = [origin(call.setup, arg) for arg in call.args]
        if steps and len(set(given)) < len(given):
            raise unsupported(steps[0].op, "one object has two names, of which one would stay")


def torch_file(program: ProgramData, *, compiled: bool = False) -> str:
    """A file with the same steps in PyTorch, which prints what a user observes of each call.

    `compiled` adds the same by `aot_function`.
    """
    imports = ["import torch"]
    functions = ["f"]
    if compiled:
        imports.append("from torch._functorch.aot_autograd import aot_function")
        imports.append("from torch._functorch.compilers import nop")
        functions.append("aot_function(f, nop)")
    language = TorchLanguage()
    parts = [inputs_text(program, i, language, pair=True) for i in range(len(program.calls))]
    parts.append(function_text(program, language))
    calls = [_play(program, i, each) for each in functions for i in range(len(program.calls))]
    return "\n\n\n".join(["\n".join(imports), *parts, PLAY, "\n".join(calls)]) + "\n"


def _play(program: ProgramData, number: int, function: str) -> str:
    call = program.calls[number]
    words = [function, inputs_name(number)]
    words += [] if call.grad else ["grad=False"]
    words += [f'write=({call.write[0]}, "{call.write[1]}")'] if call.write else []
    return f"play({', '.join(words)})"
