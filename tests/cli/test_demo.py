"""`aotlite demo`: what it trains, what it finds out, what it prints."""

import contextlib
import io

import numpy as np
import pytest

import aotlite as al
from aotlite.cli import COMMANDS, demo, main
from aotlite.cli.digits import EAGER, DigitsNet, Session, loss, step
from aotlite.cli.measure import alternating_medians, saved_bytes
from aotlite.data import load_digits
from aotlite.ir.errors import ArgumentError


@pytest.fixture(scope="module")
def result():
    """A short training: 3 epochs of 11 steps."""
    return demo.run(seed=0, epochs=3, batch=128, eager_steps=1, quiet=True)


def trained(functions, steps):
    """A session after some steps, with the learning rate and the modes changed on the way."""
    session = Session(functions, load_digits(), seed=7, batch=16)
    losses = []
    for number, (images, labels) in zip(range(steps), session.epoch(), strict=False):
        if number == 5:
            session.optimizer.lr = 0.02
        if number % 7 == 3:
            session.model.eval()
        losses.append(session.step(images, labels))
        session.model.train()
    return session, losses


@pytest.mark.slow("trains the model in eager and compiled")
def test_compiled_training_is_eagers_bit_for_bit():
    compiled = demo.compiled_functions()
    (ours, losses), (eager, expected) = trained(compiled, 20), trained(EAGER, 20)
    assert expected == losses
    states = ours.model.state_dict(), eager.model.state_dict()
    assert [t.tolist() for t in states[1].values()] == [t.tolist() for t in states[0].values()]
    assert eager.model.read_right.item() == ours.model.read_right.item() > 0
    assert (len(compiled.loss.entries), len(compiled.update.entries)) == (2, 1)


def test_a_step_as_one_graph_is_eagers_bit_for_bit():
    whole = al.compile(step, backend="reference")
    eager, compiled = (Session(EAGER, load_digits(), seed=7, batch=16) for _ in range(2))
    for number, (images, labels) in zip(range(8), eager.epoch(), strict=False):
        if number == 5:
            eager.optimizer.lr = compiled.optimizer.lr = 0.02
        al.manual_seed(number)
        expected = eager.step(images, labels)
        al.manual_seed(number)
        assert expected == whole(compiled.model, compiled.optimizer, images, labels).item()
    states = [session.model.state_dict().values() for session in (eager, compiled)]
    assert [t.tolist() for t in states[0]] == [t.tolist() for t in states[1]]
    assert 1 == len(whole.entries)
    assert whole.backward_graph is None


@pytest.mark.slow("trains the model that the tests of this file share")
def test_a_short_training_reads_most_digits(result):
    assert result.accuracy > 0.95
    assert result.train_accuracies[-1] > 0.9 > result.train_accuracies[0]
    assert len(result.losses) == 33


def test_each_function_is_compiled_once(result):
    assert result.variants == {"loss": 1, "update": 1, "predict": 1}


def test_what_is_written_in_place_is_named_by_place(result):
    statistics = [
        f"model.features.{layer}.{name}"
        for layer in (1, 5)
        for name in ("num_batches_tracked", "running_mean", "running_var")
    ]
    assert sorted(result.written["loss"]) == sorted([*statistics, "model.read_right"])
    assert set(result.written["update"]) == {
        f"optimizer.{kind}[{i}]" for kind in ("params", "momentum_buffers") for i in range(10)
    }
    assert result.written["predict"] == ()


def test_times_and_sizes_are_measured(result):
    assert result.compiled_step_seconds > 0 and result.eager_step_seconds > 0
    assert result.whole_step_seconds > 0
    assert 0 < result.compiled_saved_bytes <= result.eager_saved_bytes
    assert result.first_step_seconds < result.seconds


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """Trainings of two steps: twice by one seed, and by another; what was printed, and the dump."""
    folder, printed = tmp_path_factory.mktemp("dump"), io.StringIO()
    options = {"epochs": 1, "batch": 700, "eager_steps": 0, "quiet": True}
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        first = demo.run(seed=0, dump=str(folder), **options)
        others = [demo.run(seed=seed, **options) for seed in (0, 1)]
    return [first, *others], printed.getvalue(), folder


def test_one_seed_gives_one_training(short):
    (first, again, other), *_ = short
    assert 2 == len(first.losses)
    assert first.losses == again.losses != other.losses
    assert again.compiled_step_seconds is again.eager_step_seconds is None


def test_timing_leaves_the_trained_model_alone():
    session = Session(EAGER, load_digits(), seed=0, batch=8)
    before = session.model.state_dict()["classify.1.weight"].tolist()
    twin = session.twin(EAGER)
    twin.step(*next(twin.epoch()))
    assert session.model.state_dict()["classify.1.weight"].tolist() == before
    assert twin.optimizer.params[0] is next(iter(twin.model.parameters()))


def test_the_shift_of_scores_changes_no_loss():
    al.manual_seed(0)
    model = DigitsNet().eval()
    images, labels = al.rand(4, 1, 8, 8), al.tensor([0, 1, 2, 3])
    plain = al.nn.functional.cross_entropy(model(images), labels)
    assert loss(model, images, labels).item() == pytest.approx(plain.item(), rel=1e-6)


def test_the_command_prints_the_report(capsys):
    assert main(["demo", "--epochs", "1", "--batch", "128", "--eager-steps", "1"]) == 0
    printed = capsys.readouterr().out
    for text in (
        "accuracy on the test digits: ",
        "11 steps in ",
        "time a step",
        "as one graph",
        "saved for backward",
        "loss, compiled once, writes in place:\n  model.features.1.num_batches_tracked\n",
        "update, compiled once, writes in place:\n  optimizer.params[...]\n",
        "predict, compiled once, writes nothing in place",
        "aotlite demo --dump FOLDER",
    ):
        assert text in printed


def test_the_command_prints_the_mean_of_seeds(capsys):
    assert main(["demo", "--seeds", "2", "--seed", "3", "--epochs", "1", "--batch", "256"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["seed 3", "seed 4", "mean of 2 seeds"]


def test_a_dump_has_a_folder_for_each_function(short):
    *_, folder = short
    assert {path.name for path in folder.iterdir()} == {"loss", "update", "predict"}
    assert all(any(each.iterdir()) for each in folder.iterdir())


def test_a_quiet_run_prints_nothing(short):
    _, printed, _ = short
    assert "" == printed


@pytest.mark.parametrize("batch", [1, 1443])
def test_a_batch_that_cannot_be_is_refused(batch):
    with pytest.raises(ArgumentError, match=rf"demo: batch is {batch}, expected 2 to 1442"):
        demo.run(batch=batch)


def test_errors_of_ours_become_a_line_and_a_status(capsys):
    assert main(["demo", "--batch", "5000"]) == 2
    assert capsys.readouterr().err.startswith("aotlite: demo: batch is 5000, expected 2 to 1442")


def test_ctrl_c_ends_quietly(monkeypatch, capsys):
    def interrupted(**_):
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "run", interrupted)
    assert main(["demo"]) == 130
    assert capsys.readouterr().err == "aotlite: interrupted\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["demo", "--epochs", "0"], "argument --epochs: 0 is too small, expected at least 1"),
        (["demo", "--batch", "many"], "argument --batch: invalid integer value: 'many'"),
        (["dance"], "command is 'dance', expected one of demo, "),
        ([], "status: 0 well, 1 something failed"),
    ],
)
def test_wrong_arguments_are_explained(arguments, complaint, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert complaint in capsys.readouterr().err


def test_help_names_every_command_and_option(capsys):
    for arguments, words in (
        (["--help"], COMMANDS),
        (["demo", "--help"], "--seed --seeds --epochs --batch --eager-steps --dump".split()),
    ):
        with pytest.raises(SystemExit):
            main(arguments)
        printed = capsys.readouterr().out
        assert all(word in printed for word in words)


def test_saved_bytes_count_each_storage_once_and_nothing_outside():
    x, w = al.ones(10), al.ones(10, requires_grad=True)
    hidden = (x * w).exp()  # saves x and its own result, 40 bytes each
    y = (hidden * hidden.view(2, 5).view(10)).sum()  # saves that result again
    assert saved_bytes(y, ()) == 80
    assert saved_bytes(y, (x, w)) == 40


def test_saved_bytes_see_through_writes_of_views():
    x = al.ones(4, requires_grad=True)
    base = x * 1
    base[:2].mul_(base[2:].detach().exp())  # saves the factor
    assert saved_bytes(base, (x,)) == 8


def test_alternating_actions_take_turns():
    seen = []
    medians = alternating_medians([lambda: seen.append("a"), lambda: seen.append("b")], 3)
    assert "".join(seen) == "ababab"
    assert len(medians) == 2 and np.all(np.array(medians) >= 0)
