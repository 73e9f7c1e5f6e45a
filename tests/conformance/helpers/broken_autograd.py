"""Adapters of aotlite with one mistake each, for the rules about autograd and compilation."""

import contextlib
import itertools

import aotlite
from aotlite.conformance.adapters.aotlite import Aotlite

COUNTER = itertools.count()


class DetachCopies(Aotlite):
    detach = lambda self, a: a.detach().clone()


class DetachKeepsHistory(Aotlite):
    detach = lambda self, a: a.view(a.shape)


class HiddenAliasCounts(Aotlite):
    hidden_alias = lambda self, a: a.detach()


class HiddenAliasCopies(Aotlite):
    hidden_alias = lambda self, a: a.detach().clone()


class AnythingIsALeaf(Aotlite):
    requires_grad_ = lambda self, a, flag: a.requires_grad_(flag) if a.is_floating_point() else a


class EverythingIsALeaf(Aotlite):
    is_leaf = lambda self, a: True


class HistoriesEnd(Aotlite):
    def requires_grad_(self, a, flag):
        return a.requires_grad_(flag) if a.is_leaf else a.detach_()


class WritesHaveNoHistory(Aotlite):
    """Writes of values alone."""

    def mul_(self, a, b):
        a.detach().mul_(b.detach() if isinstance(b, aotlite.Tensor) else b)
        return a

    fill_ = lambda self, a, number: (a.detach().fill_(number), a)[1]


class WritesAreNotInPlace(Aotlite):
    mul_ = lambda self, a, b: a * b
    add_ = lambda self, a, b: a + b


class LeavesCannotBeWritten(Aotlite):
    def mul_(self, a, b):
        if a.requires_grad and a.is_leaf and not aotlite.is_grad_enabled():
            raise RuntimeError("a leaf")
        return a.mul_(b)


class ViewsCopy(Aotlite):
    """Views without a base."""

    narrow = lambda self, a, dim, start, length: a.narrow(dim, start, length).clone()
    select = lambda self, a, dim, index: a.select(dim, index).clone()
    view = lambda self, a, shape: a.reshape(shape).clone()
    unsqueeze = lambda self, a, dim: a.unsqueeze(dim).clone()


class ViewsHaveNoHistory(Aotlite):
    view = lambda self, a, shape: a.detach().view(shape)
    select = lambda self, a, dim, index: a.detach().select(dim, index)


class PartsAreViews(Aotlite):
    """One of several views can be written like any other view."""

    unbind = lambda self, a, dim: [a.select(dim, i) for i in range(a.shape[dim])]

    def split(self, a, size, dim):
        return [a.narrow(dim, i, size) for i in range(0, a.shape[dim], size)]


class PartsCannotBeWritten(Aotlite):
    def mul_(self, a, b):
        if a.base is not None:
            raise RuntimeError("a view")
        return a.mul_(b)


class PartsAreStale(Aotlite):
    """Parts that keep their history from before a write."""

    unbind = lambda self, a, dim: [a.select(dim, i) * 1.0 for i in range(a.shape[dim])]

    def split(self, a, size, dim):
        return [a.narrow(dim, i, size) * 1.0 for i in range(0, a.shape[dim], size)]


class NoGradDoesNothing(Aotlite):
    def no_grad(self):
        return contextlib.nullcontext()

    def inference_mode(self):
        return contextlib.nullcontext()


class ViewsCanBeDetached(Aotlite):
    detach_ = lambda self, a: a.detach()


class BaseBecomesALeafToo(Aotlite):
    def requires_grad_(self, a, flag):
        if a.base is not None:
            a.base.requires_grad_(flag)
        return a.requires_grad_(flag)


class GeometryIsNotInHistory(Aotlite):
    def transpose_(self, a, dim0, dim1):
        return a.detach().transpose_(dim0, dim1)

    def unsqueeze_(self, a, dim):
        return a.detach().unsqueeze_(dim)


class ResizesAnything(Aotlite):
    resize_ = lambda self, a, shape: a.detach().resize_(shape)


class OwnGradients(Aotlite):
    """Gradients that share no memory, a choice that differs from aotlite's."""

    def vjp(self, function, arrays, gradient):
        return [each.clone() for each in super().vjp(function, arrays, gradient)]


class SavedValuesAreNotChecked(Aotlite):
    """Writes that no version counter counts."""

    def mul_(self, a, b):
        a.hidden_alias().mul_(b)
        return a

    def fill_(self, a, number):
        a.hidden_alias().fill_(number)
        return a


class BackwardTwiceIsZero(Aotlite):
    """A second backward through one result adds a wrong gradient."""

    def backward(self, a, gradient):
        a.backward(gradient * 0.5, retain_graph=True)

    backward_kept = backward


class GradientsAreReplaced(Aotlite):
    """A leaf keeps the last gradient alone."""

    def __init__(self):
        self.leaves = []

    def requires_grad_(self, a, flag):
        self.leaves.append(a)
        return a.requires_grad_(flag)

    def backward(self, a, gradient):
        for leaf in self.leaves:
            if leaf.grad is not None:
                leaf.grad = None
        a.backward(gradient, retain_graph=True)

    backward_kept = backward_recorded = backward


class ResultsAreKept(Aotlite):
    """A library that keeps its results alive."""

    def __init__(self):
        self.kept = []

    def exp(self, a):
        self.kept.append(a.exp())
        return self.kept[-1]


class HooksRunTwice(Aotlite):
    def on_gradient(self, a, hook):
        a.register_hook(hook)
        a.register_hook(hook)


class NoneIsZeros(Aotlite):
    grad = lambda self, a: aotlite.zeros(a.shape, dtype=a.dtype) if a.grad is None else a.grad


class GradientsAreShared(Aotlite):
    """Leaves store the gradient itself, and share it with each other and with the caller."""

    def __init__(self):
        self.leaves = []

    def requires_grad_(self, a, flag):
        self.leaves.append(a)
        return a.requires_grad_(flag)

    def backward(self, a, gradient):
        held = {id(each): each.grad for each in self.leaves}
        a.backward(gradient, retain_graph=True)
        for each in self.leaves:
            if held[id(each)] is None and each.grad is not None:
                same = each.grad.tolist() == gradient.reshape(each.shape).tolist()
                if same:
                    each.grad = gradient.view(each.shape)


class GradientIsTheOperand(Aotlite):
    """The gradient of a product is the other factor itself."""

    def grad(self, a):
        return self.factor if hasattr(self, "factor") else a.grad

    def mul(self, a, b):
        if isinstance(b, aotlite.Tensor):
            self.factor = b
        return a * b


class GradientsAreCopies(Aotlite):
    grad = lambda self, a: None if a.grad is None else a.grad.clone()


class AlwaysInPlace(Aotlite):
    backward_recorded = lambda self, a, gradient: a.backward(gradient)


class RetainsNothing(Aotlite):
    retain_grad = lambda self, a: None


class CustomIsTraced(Aotlite):
    """A custom function whose backward is not called."""

    def custom(self, forward, backward):
        class Context:
            save_for_backward = mark_dirty = lambda self, *arrays: None

        return lambda *arrays: forward(Context(), *arrays)


class CustomIsForgiving(Aotlite):
    """Missing gradients of a custom function are filled in; its saved values are not checked."""

    def custom(self, forward, backward):
        class Function(aotlite.autograd.Function):
            @staticmethod
            def forward(ctx, *arrays):
                class Saving:
                    def save_for_backward(self, *saved):
                        ctx.kept = saved

                ctx.count = len(arrays)
                return forward(Saving(), *arrays)

            @staticmethod
            def backward(ctx, gradient):
                class Saved:
                    saved_tensors = getattr(ctx, "kept", ())

                found = backward(Saved, gradient)
                found = found if isinstance(found, tuple) else (found,)
                return (found + (None,) * ctx.count)[: ctx.count]

        return Function.apply


class FirstSlotOnly(Aotlite):
    """One array in two slots counts once."""

    def call(self, function, arrays):
        seen: list = []
        given = []
        for each in arrays:
            known = any(each is other for other in seen)
            seen.append(each)
            given.append(each.detach() if known else each)
        return function(*given)


class BackwardIsCareless(Aotlite):
    """A custom backward that writes its gradient changes the caller's gradient."""

    def custom(self, forward, backward):
        return super().custom(forward, lambda ctx, gradient: backward(ctx, gradient.clone()))

    def backward(self, a, gradient):
        a.backward(gradient.clone())
        gradient.mul_(2.0)


class GradientsHaveNoHistory(Aotlite):
    """Second derivatives that are silently zero."""

    def gradient_of(self, a, x, gradient):
        found = aotlite.autograd.grad(a, [x], gradient, retain_graph=True)[0]
        return found + x * 0.0


class VjpIsTransposed(Aotlite):
    """A reversed gradient in every other call."""

    def vjp(self, function, arrays, gradient):
        found = super().vjp(function, arrays, gradient.flip(0) if gradient.dim() else gradient)
        gradient.mul_(2.0)
        return found


class VjpMerges(Aotlite):
    """One array in two arguments has one gradient."""

    def vjp(self, function, arrays, gradient):
        found = super().vjp(function, arrays, gradient)
        first = {id(each): g for each, g in reversed(list(zip(arrays, found, strict=True)))}
        return [first[id(each)] for each in arrays]


class PicksCountOnce(Aotlite):
    """Of an index given twice only the first mention has a gradient."""

    def pick(self, a, places):
        first = [place not in places[:index] for index, place in enumerate(places)]
        pairs = zip(places, first, strict=True)
        parts = [a[[p]] if counts else a[[p]].detach() for p, counts in pairs]
        return aotlite.cat(parts, 0)


class CountsTwice(Aotlite):
    write_count = lambda self, a: 2 * a._version


class CountsNothing(Aotlite):
    write_count = lambda self, a: 0


class CountsEverything(Aotlite):
    write_count = lambda self, a: next(COUNTER)


class CountsAttempts(Aotlite):
    """A write counts before it is refused."""

    def add_(self, a, b):
        try:
            return a.add_(b)
        except Exception:
            a.detach().fill_(0.0)
            raise

    mul_ = add_


# --- compiled functions


def tensors(arrays):
    return [each for each in arrays if isinstance(each, aotlite.Tensor)]


class Compiled(Aotlite):
    """Compiles by `_wrap` around the plain function; writes before an error stay."""

    _wrap = lambda self, function, *arrays: function(*arrays)

    def compile(self, function):
        return lambda *arrays: self._wrap(function, *arrays)

    compile_donating = compile

    def set_at(self, a, key, value):
        made = a.clone()
        made[key] = value
        return made

    def add_at(self, a, key, value):
        made = a.clone()
        for place in key:
            made[place] += value
        return made


class ArgumentsAreCopied(Compiled):
    _wrap = lambda self, function, *arrays: function(*(each.clone() for each in arrays))


class ResultsAreCopied(Compiled):
    def _wrap(self, function, *arrays):
        result = function(*arrays)
        if isinstance(result, list | tuple):
            return [each.clone() for each in result]
        return None if result is None else result.clone()


class ResultsAreOff(Compiled):
    def _wrap(self, function, *arrays):
        result = function(*arrays)
        return result + 1.0 if isinstance(result, aotlite.Tensor) else result


class ResultsAreContiguous(Compiled):
    def _wrap(self, function, *arrays):
        result = function(*arrays)
        return result.contiguous() if isinstance(result, aotlite.Tensor) else result


class RunsOnce(Compiled):
    """Every call returns the first result."""

    def compile(self, function):
        made = []

        def call(*arrays):
            if not made:
                made.append(function(*arrays))
            return made[0]

        return call


class VersionsMove(Compiled):
    def _wrap(self, function, *arrays):
        result = function(*arrays)
        for each in tensors(arrays):
            with aotlite.no_grad():
                each.add_(0.0)
        return result


class RefusesNothing(Compiled):
    def _wrap(self, function, *arrays):
        try:
            return function(*arrays)
        except Exception:
            return None


class BehindNoGrad(Compiled):
    def _wrap(self, function, *arrays):
        with aotlite.no_grad():
            return function(*arrays)


class EverythingRequiresGradients(Compiled):
    """Every result leads to every leaf."""

    def _wrap(self, function, *arrays):
        result = function(*arrays)
        zero = sum((each.sum() * 0.0 for each in tensors(arrays)), start=aotlite.zeros(()))
        if isinstance(result, tuple):
            return tuple(each + zero for each in result)
        return result


class SavesWhatIsNotChecked(Compiled):
    """Gradients use the values at the time of the backward, without a check."""

    def _wrap(self, function, *arrays):
        return function(*[arrays[0], *(each.hidden_alias() for each in arrays[1:])])


class GraphsAreFreed(Compiled):
    backward_kept = lambda self, a, gradient: a.backward(gradient)


class DonatedIsOverwritten(Compiled):
    """Takes the memory of the first argument, and leaves it readable."""

    def compile_donating(self, function):
        def call(*arrays):
            result = function(*arrays)
            arrays[0].zero_()
            return result

        return call


class DonatedIsWrong(Compiled):
    def compile_donating(self, function):
        def call(*arrays):
            arrays[0].zero_()
            return function(*arrays)

        return call


class LentIsOverwritten(DonatedIsOverwritten):
    clone = lambda self, a: a.view(a.shape)


class UpdatesWrite(Compiled):
    """Functional updates that write their operand."""

    def compile(self, function):
        return lambda *arrays: next(each.fill_(5.0) for each in arrays)


class UpdatesHaveGradients(Compiled):
    """Overwritten elements have a gradient."""

    def set_at(self, a, key, value):
        made = a * 1.0 + 0.0 * value
        return made
