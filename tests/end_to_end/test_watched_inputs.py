"""Arguments with hooks, leaves on memory that was written, and who is a leaf after a call."""

import pytest

import aotlite as al


def state(*tensors):
    return [(t.requires_grad, t.is_leaf, t.grad_fn is None, t.version) for t in tensors]


def pair(kind):
    """A tensor and a view of it."""
    x = al.ones(2, 3).requires_grad_(kind in ("leaf", "computed", "quiet view"))
    if kind == "computed":
        x = x * 1
    if kind in ("quiet view", "leaf view"):
        with al.no_grad():
            v = x.t()
        return x, v.requires_grad_() if kind == "leaf view" else v
    return x, x.t()


KINDS = ("plain", "leaf", "computed", "quiet view", "leaf view")
CHANGES = ("becomes a leaf", "leaves its history", "requires grad no more")


def changed(name):
    def body(x, v):
        if name == "becomes a leaf":
            x.requires_grad_()
        elif name == "leaves its history":
            x.detach_()
        else:
            x.requires_grad_(False)

    return body


@pytest.mark.rules("FUN-36", "SYN-2")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CHANGES)
def test_a_base_that_changes_beside_its_view_has_no_new_history(kind, name):
    """Who is a leaf is a change of the object, and no write of the family."""
    worlds = []
    for function in (changed(name), al.compile(changed(name))):
        x, v = pair(kind)
        try:
            function(x, v)
        except al.AutogradError:
            worlds.append("refused")
        else:
            worlds.append(state(x, v))
    assert worlds[0] == worlds[1]


@pytest.mark.rules("SYN-2")
@pytest.mark.parametrize("whole", [False, True])
def test_a_leaf_on_memory_that_was_written_before_collects_its_gradient(whole):
    """TEN-23: whatever is written to its base."""

    def scaled(leaf, *others):
        return leaf * 3

    base = al.ones(4)
    with al.no_grad():
        leaf = base.view(-1).requires_grad_()
    base.mul_(2)
    compiled = al.compile(scaled)
    compiled(leaf, *[base] * whole).sum().backward()
    assert [3.0] * 4 == leaf.grad.tolist()


@pytest.mark.rules("RT-2", "GRD-1")
def test_a_write_goes_past_the_hooks_of_a_view():
    """TEN-39: they stay with the value before, and another call may have none."""

    def written(part):
        part.add_(1)

    compiled = al.compile(written)
    for hooked in (False, True, False, True):
        gradients = []
        for function in (written, compiled):
            leaf = al.ones(2, 2).requires_grad_()
            part = (leaf * 1)[0]
            if hooked:
                part.register_hook(lambda grad: grad * 3)
            function(part)
            (part * part).sum().backward()
            gradients.append(leaf.grad.tolist())
        assert gradients[0] == gradients[1]
    assert len(compiled.entries) == 2


@pytest.mark.parametrize("way", ["hook", "retain"])
@pytest.mark.parametrize("single", [True, False])
def test_the_gradient_of_an_argument_with_hooks_is_refused(way, single):
    """TEN-41: at the first call and at later ones; not when they are gone."""

    def inside(x):
        return al.autograd.grad((x * x).sum(), [x], create_graph=not single)[0]

    compiled = al.compile(inside)
    x = al.ones(2).requires_grad_() * 1
    assert [2.0, 2.0] == compiled(x).tolist()
    if way == "hook":
        handle = x.register_hook(lambda grad: grad * 5)
    else:
        x.retain_grad()
    with pytest.raises(al.UnsupportedError, match="argument 0, which has hooks") as caught:
        compiled(x)
    assert "view_as" in "".join(caught.value.__notes__)
    if way == "hook":
        handle.remove()
        assert [2.0, 2.0] == compiled(x).tolist()
        assert len(compiled.entries) == 1


@pytest.mark.rules("RT-6")
@pytest.mark.parametrize("fast", [True, False])
def test_views_of_inference_tensors_have_no_base(fast):
    """TEN-22."""

    def parts(x):
        y = x.sin()
        return y, y[0], x[0], x.hidden_alias()[0]

    for mode in (al.inference_mode, al.no_grad):
        bases = []
        for function in (parts, al.compile(parts, fast_paths=fast)):
            with al.inference_mode():
                x = al.ones(2, 2)
            with mode():
                bases.append([each.base is None for each in function(x)])
        assert bases[0] == bases[1]


@pytest.mark.rules("RT-6")
def test_a_quiet_view_that_was_written_follows_its_base():
    """TEN-21: it has no node, so that it requires grad as long as its base does."""

    def view_and_write(x):
        v = x.view(-1)
        x.zero_()
        return v

    for function in (view_and_write, al.compile(view_and_write)):
        x = al.ones(2, 2).requires_grad_()
        with al.no_grad():
            v = function(x)
        assert v.requires_grad
        x.detach_()
        assert not v.requires_grad


@pytest.mark.rules("RT-6")
@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("turned", [True, False])
def test_a_view_of_what_has_no_history_may_get_one_by_a_write(fast, turned):
    """However it is rebuilt: by a quick view, or by replay behind a change of geometry."""

    def part(x):
        if turned:
            x.as_strided_((2,), (1,), 0)
        return x[::2]

    x, w = al.ones(4), al.ones(1).requires_grad_()
    result = al.compile(part, fast_paths=fast)(x)
    result.mul_(w)
    assert result.grad_fn is not None
    assert x.grad_fn is not None


def test_hooks_of_a_leaf_made_inside_are_those_of_the_result():
    """HOOK-1: each call registers them."""

    def made(x):
        y = x * 2
        y.requires_grad_()
        y.register_hook(lambda grad: grad * 3)
        return y

    def inside_no_grad(x):
        with al.no_grad():
            return made(x)

    x = al.ones(2)
    for _ in range(2):
        leaf = al.compile(inside_no_grad)(x)
        (leaf * 2).sum().backward()
        assert leaf.is_leaf
        assert [6.0, 6.0] == leaf.grad.tolist()


def test_the_gradient_of_a_view_that_was_written_needs_its_base():
    """Older views of it are views of the base, and not of it (TEN-3)."""

    def inside(part, *base):
        older = part.t()
        part.mul_(3)
        return al.autograd.grad(older.sum(), [part], allow_unused=True)[0]

    def arguments():
        base = al.ones(4).requires_grad_() * 1
        return base.unsqueeze(0), base

    compiled = al.compile(inside)
    assert inside(*arguments()) is None
    assert compiled(*arguments()) is None
    part, _ = arguments()
    with pytest.raises(al.UnsupportedError, match="a view that was written before"):
        compiled(part)
    assert part.version == 0


@pytest.mark.parametrize("kept", [True, False])
def test_a_part_of_a_hidden_alias_is_refused_as_an_operand(kept):
    """TEN-7: two arguments, each with a storage of its own, on one buffer."""

    def shifted(to, source):
        to[:1] = source[-1:]

    compiled = al.compile(shifted, keep_inference_input_mutations=kept)
    for function in (shifted, compiled):
        x = al.arange(8.0).view(2, 2, 2)
        with pytest.raises(al.AliasError, match="overlaps the destination"):
            function(x.unsqueeze(0).hidden_alias(), x)
        assert x.flatten().tolist() == [float(i) for i in range(8)]
