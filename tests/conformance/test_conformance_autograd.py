"""Each rule about histories, gradients, versions and compilation finds a planted mistake."""

import pytest

import tests.conformance.helpers.broken_autograd as broken
from aotlite.conformance import all_rules, check
from aotlite.conformance.adapters.aotlite import Aotlite
from aotlite.conformance.outcomes import Breaks, Keeps, Lacks

GROUPS = ("autograd", "gradients", "vjp", "versions", "compilation", "training", "environment")
RULES = [rule for rule in all_rules() if rule.group in GROUPS]
CHOSEN_OTHERWISE = {"AUT-9", "CMP-4b", "CMP-5a"}  # by aotlite

FOUND = {
    "TEN-4a": broken.DetachCopies,
    "TEN-4b": broken.DetachKeepsHistory,
    "TEN-4c": broken.DetachCopies,
    "TEN-5a": broken.HiddenAliasCounts,
    "TEN-14a": broken.AnythingIsALeaf,
    "TEN-14b": broken.EverythingIsALeaf,
    "TEN-14c": broken.HistoriesEnd,
    "TEN-15a": broken.WritesHaveNoHistory,
    "TEN-15b": broken.WritesHaveNoHistory,
    "TEN-15c": broken.LeavesCannotBeWritten,
    "TEN-16a": broken.WritesAreNotInPlace,
    "TEN-16b": broken.WritesHaveNoHistory,
    "TEN-17a": broken.ViewsHaveNoHistory,
    "TEN-17b": broken.WritesHaveNoHistory,
    "TEN-18a": broken.ViewsHaveNoHistory,
    "TEN-18b": broken.ViewsCopy,
    "TEN-19a": broken.PartsAreViews,
    "TEN-19b": broken.PartsAreViews,
    "TEN-19c": broken.PartsCannotBeWritten,
    "TEN-19d": broken.NoGradDoesNothing,
    "TEN-20": broken.PartsAreStale,
    "TEN-21a": broken.NoGradDoesNothing,
    "TEN-21b": broken.NoGradDoesNothing,
    "TEN-22a": broken.NoGradDoesNothing,
    "TEN-22b": broken.NoGradDoesNothing,
    "TEN-23a": broken.ViewsCanBeDetached,
    "TEN-23b": broken.BaseBecomesALeafToo,
    "TEN-24a": broken.GeometryIsNotInHistory,
    "TEN-24b": broken.GeometryIsNotInHistory,
    "TEN-25a": broken.ResizesAnything,
    "TEN-17z": broken.WritesHaveNoHistory,
    "TEN-12a": broken.SavedValuesAreNotChecked,
    "TEN-12b": broken.BackwardTwiceIsZero,
    "SAV-5": broken.GradientsAreReplaced,
    "TEN-13": broken.ResultsAreKept,
    "TEN-27": broken.HooksRunTwice,
    "TEN-28a": broken.NoneIsZeros,
    "TEN-29a": broken.GradientsAreReplaced,
    "TEN-29b": broken.GradientsAreShared,
    "TEN-29c": broken.GradientsAreShared,
    "TEN-29d": broken.GradientIsTheOperand,
    "TEN-29e": broken.GradientsAreCopies,
    "TEN-29f": broken.AlwaysInPlace,
    "TEN-40": broken.RetainsNothing,
    "TEN-30a": broken.CustomIsTraced,
    "TEN-30b": broken.CustomIsForgiving,
    "TEN-30c": broken.CustomIsForgiving,
    "TEN-30d": broken.CustomIsTraced,
    "TEN-31a": broken.FirstSlotOnly,
    "TEN-31b": broken.CustomIsForgiving,
    "TEN-31c": broken.BackwardIsCareless,
    "DBL-1": broken.GradientsHaveNoHistory,
    "AUT-1": broken.VjpIsTransposed,
    "AUT-2": broken.VjpIsTransposed,
    "AUT-3": broken.PicksCountOnce,
    "AUT-4": broken.UpdatesHaveGradients,
    "AUT-5": broken.VjpIsTransposed,
    "AUT-6": broken.DetachKeepsHistory,
    "AUT-7": broken.VjpMerges,
    "AUT-9": broken.Compiled,
    "FUN-38": broken.BehindNoGrad,
    "META-8": broken.BehindNoGrad,
    "TEN-31d": broken.BehindNoGrad,
    "AUT-8": broken.BehindNoGrad,
    "TEN-10a": broken.CountsTwice,
    "TEN-10b": broken.CountsNothing,
    "TEN-10c": broken.CountsEverything,
    "TEN-10d": broken.CountsTwice,
    "TEN-10e": broken.CountsNothing,
    "TEN-10f": broken.CountsEverything,
    "TEN-10g": broken.CountsTwice,
    "TEN-10h": broken.CountsEverything,
    "TEN-10i": broken.CountsAttempts,
    "TEN-5b": broken.HiddenAliasCounts,
    "TEN-11": broken.NoGradDoesNothing,
    "META-14": broken.ArgumentsAreCopied,
    "META-13a": broken.ResultsAreCopied,
    "META-13b": broken.ResultsAreCopied,
    "RT-6": broken.ResultsAreCopied,
    "CMP-1": broken.ResultsAreContiguous,
    "FUN-17": broken.ArgumentsAreCopied,
    "FUN-7": broken.ResultsAreOff,
    "FUN-9": broken.ArgumentsAreCopied,
    "FUN-12": broken.ArgumentsAreCopied,
    "DUP-2": broken.ArgumentsAreCopied,
    "SYN-1": broken.ArgumentsAreCopied,
    "SYN-9": broken.ResultsAreCopied,
    "DUP-5": broken.RunsOnce,
    "GRD-1a": broken.RunsOnce,
    "GRD-1b": broken.RunsOnce,
    "RT-3": broken.ArgumentsAreCopied,
    "CMP-10": broken.ResultsAreOff,
    "CMP-11": broken.ArgumentsAreCopied,
    "CMP-12": broken.BehindNoGrad,
    "FUN-8": broken.RefusesNothing,
    "RT-10": broken.Compiled,
    "FUN-23": broken.VersionsMove,
    "FUN-19": broken.VersionsMove,
    "RT-2": broken.BehindNoGrad,
    "FUN-20": broken.BehindNoGrad,
    "FUN-15": broken.BehindNoGrad,
    "FUN-36": broken.BaseBecomesALeafToo,
    "TAN-8": broken.EverythingRequiresGradients,
    "META-12": broken.GraphsAreFreed,
    "SAV-2": broken.SavesWhatIsNotChecked,
    "SAV-5b": broken.GraphsAreFreed,
    "DBL-1b": broken.GradientsHaveNoHistory,
    "CMP-2": broken.RunsOnce,
    "CMP-3": broken.RunsOnce,
    "CMP-4": broken.RunsOnce,
    "CMP-4b": broken.RunsOnce,
    "CMP-5a": broken.RunsOnce,
    "CMP-5b": broken.Compiled,
    "CMP-6": broken.ResultsAreCopied,
    "CMP-7": broken.UpdatesWrite,
    "CMP-8": broken.ArgumentsAreCopied,
    "CMP-9": broken.ResultsAreCopied,
    "DON-1": broken.DonatedIsOverwritten,
    "DON-2": broken.DonatedIsWrong,
    "DON-3": broken.LentIsOverwritten,
}


@pytest.mark.thinned(4)
@pytest.mark.parametrize("rule", [rule.id for rule in RULES])
def test_a_planted_mistake_is_found_with_a_witness(rule):
    (result,) = check(FOUND[rule], [rule]).results
    assert isinstance(result.outcome, Breaks), result
    assert "aotlite." in "\n".join(result.outcome.lines)
    assert result.outcome.got != result.outcome.expected


@pytest.mark.thinned(3)
@pytest.mark.parametrize("group", GROUPS)
def test_aotlite_breaks_none_of_them(group):
    report = check(Aotlite, [group])
    assert not report.broken, report.table()
    chosen = {each.rule for each in report.results if isinstance(each.outcome, Breaks)}
    assert chosen == CHOSEN_OTHERWISE & {rule.id for rule in RULES if rule.group == group}
    lacking = {each.rule for each in report.results if isinstance(each.outcome, Lacks)}
    assert lacking <= {"AUT-4", "CMP-10", "DON-1", "DON-2", "DON-3"}


def test_each_id_names_one_rule():
    ids = [rule.id for rule in all_rules()]
    assert sorted(set(ids)) == sorted(ids)


def test_a_witness_shows_blocks_and_functions():
    (result,) = check(broken.NoGradDoesNothing, ["TEN-21a"]).results
    assert result.outcome.lines == (
        "a = aotlite.tensor([1.0], dtype=aotlite.float64)",
        "a.requires_grad_(True)",
        "with contextlib.nullcontext():",
        "    b = a * 2.0",
        "b.requires_grad",
    )


def test_a_witness_shows_custom_functions_and_what_is_compiled():
    (custom,) = check(broken.CustomIsTraced, ["TEN-30d"]).results
    assert custom.outcome.lines[3:12] == (
        "def doubled_in_place(ctx, a):",
        "    a.mul_(2.0)",
        "    ctx.mark_dirty(a)",
        "    return a",
        "def tenfold(ctx, g):",
        "    return g * 10.0",
        "c = custom(doubled_in_place, tenfold)",
        "b = c(b)",
        "b.tolist()",
    )
    (compiled,) = check(broken.ArgumentsAreCopied, ["SYN-1"]).results
    assert compiled.outcome.lines == (
        "def function(x, y):",
        "    x.mul_(2.0)",
        "    z = y + 1.0",
        "    return z",
        "compiled = compile(function)",
        "a = aotlite.tensor([1.0, 2.0], dtype=aotlite.float64)",
        "b = a.view((2,))",
        "c = compiled(a, b)",
    )


def test_a_witness_shows_what_changes_around_a_function():
    (result,) = check(broken.RunsOnce, ["CMP-4"]).results
    assert result.outcome.lines == (
        "a = aotlite.tensor([1.0], dtype=aotlite.float64)",
        "v = 2.0",
        "def function(x):",
        "    return x + v",
        "compiled = compile(function)",
        "b = compiled(a)",
        "b.tolist()",
        "v = 3.0",
        "b = compiled(a)",
        "b.tolist()",
    )


def test_a_library_may_choose_gradients_of_their_own():
    (result,) = check(broken.OwnGradients, ["AUT-9"]).results
    assert isinstance(result.outcome, Keeps)
