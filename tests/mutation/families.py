"""The properties for mutants: random or exhaustive checks, without named examples.

A family is a check of a seed, which raises if a property is false. A case is a family and a seed.
In Hypothesis' tests the seed draws the examples; explicit examples are left out.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from functools import cache, partial
from importlib.util import find_spec
from inspect import signature
from typing import Any

import attrs
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from aotlite.pipeline import options
from tests.mutation.programs import (
    alias_program,
    alias_program_again,
    alias_program_towards,
    random_session,
    small_programs,
    target_of,
)

Check = Callable[[int], None]

options.DEFAULT_BACKEND = "reference"  # as in the suite: bits are compared, no file is compiled


@attrs.frozen
class Family:
    """A check, and the number of its seeds in the pool."""

    name: str
    count: int
    check: Check


def families() -> list[Family]:
    """All of them."""
    return [*_direct(), *(family for module in _GIVEN for family in _of_hypothesis(module))]


def cases() -> list[str]:
    """The names of all cases of the pool."""
    return [f"{family.name} #{seed}" for family in families() for seed in range(family.count)]


def family_of(case: str) -> str:
    """The name of a case's family."""
    return case.rpartition(" #")[0]


def run(case: str) -> None:
    """Runs a case, which raises if its property is false. Imports no more than it needs."""
    name, _, seed = case.rpartition(" #")
    _family(name).check(int(seed))


def neighbors(case: str) -> Iterator[str]:
    """Further cases that are likely to execute the same lines: those of the same cell."""
    name, _, seed = case.rpartition(" #")
    if name == "alias programs":
        for number in range(10):
            yield f"{_TOWARDS}{target_of(int(seed))} #{_FRESH + 10 * int(seed) + number}"


_TOWARDS = "alias programs towards "
_FRESH = 10**6


@cache
def _family(name: str) -> Family:
    if name.startswith(_TOWARDS):
        return Family(name, 0, partial(alias_program_towards, int(name.removeprefix(_TOWARDS))))
    whole, _, _ = name.partition(", ")
    module = whole.rpartition(".")[0]
    found = _of_hypothesis(module) if module in _GIVEN else ()
    return next(family for family in [*_direct(), *found] if family.name == name)


def _direct() -> list[Family]:
    return [
        Family("alias programs", 3600, alias_program),
        Family("alias programs again", 300, alias_program_again),
        Family("random sessions", 300, random_session),
        Family("small programs", 300, small_programs),
        *(Family(f"overlap {name}", 16, partial(_overlap, name, n)) for name, n in _OVERLAP),
        Family("laws of stages", 30, _stage_laws),
        Family("written views", 14, _written_views),
        *_exhaustive(),
    ]


# -------------------------------------------------------------------------- Hypothesis's properties
_RULES = "tests.rules.test_"
_GIVEN = (
    *(
        _RULES + name
        for name in (
            "ali_groups ali_ndarrays ali_overlap cap_containers cap_places cap_values dup_repeats "
            "fun_backwards fun_chains fun_hidden fun_inputs fun_late fun_moves "
            "fun_lenses fun_memory fun_purity fun_reach fun_values gen_containers grd_patterns "
            "meta_records meta_sentences rt_effects sav_contexts sav_versions syn_bases "
            "tan_arrivals tan_layouts"
        ).split()
    ),
    "tests.stages.s7_simplify.test_windows",
    "tests.stages.s8_partition.test_mincut",
    "tests.end_to_end.test_bad_aliasing",
    "tests.end_to_end.test_compiled_equals_eager",
    "tests.ir.symbols.test_lattice",
    "tests.ir.geometry.test_overlap",
    "tests.ir.geometry.test_symbolic_layout",
    "tests.eager.autograd.test_engine_compiled",
)
SEEDS = 5
_MORE = {
    "tests.rules.test_fun_moves": 12,
    "tests.rules.test_grd_patterns": 8,
    "tests.stages.s7_simplify.test_windows": 30,
}
"""Where more are needed for rare draws."""
EXAMPLES = 10


def _of_hypothesis(name: str) -> Iterator[Family]:
    module = importlib.import_module(name)
    for each, test in vars(module).items():
        if each.startswith("test_") and getattr(test, "is_hypothesis_test", False):
            for number, arguments in enumerate(_parameters(test)):
                label = f"{name}.{each}" + (f", {number}" if arguments else "")
                yield Family(label, _MORE.get(name, SEEDS), partial(_draw, test, arguments))


def _parameters(test: Any) -> list[dict[str, Any]]:
    """The parameters that Hypothesis does not draw; none for a test with fixtures."""
    wanted = list(signature(test).parameters)
    if not wanted:
        return [{}]
    marks = [m for m in getattr(test, "pytestmark", []) if m.name == "parametrize"]
    if len(marks) != 1 or wanted != [marks[0].args[0]]:
        return []
    return [{wanted[0]: getattr(value, "values", [value])[0]} for value in marks[0].args[1]]


def warm_up() -> None:
    """Runs a first draw, at which Hypothesis searches all modules for constants, once."""

    @settings(max_examples=3, database=None)
    @given(st.integers(), st.text())
    def nothing(number: int, text: str) -> None:
        return

    nothing()


def _draw(test: Any, arguments: dict[str, Any], seed: int) -> None:
    # Hypothesis has no public way to draw other examples of a test than its decorators say.
    test._hypothesis_internal_use_seed = seed
    test._hypothesis_internal_use_settings = settings(
        max_examples=EXAMPLES,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        derandomize=False,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    test(**arguments)


# ------------------------------------------------------------------------- own random checks
_OVERLAP = (
    ("compare_pairs", 60),
    ("compare_bytes", 40),
    ("compare_alone", 60),
    ("compare_at_once", 40),
    ("compare_adversaries", 4),
)


def _overlap(name: str, count: int, seed: int) -> None:
    from tests.rules import test_ali_overlap

    getattr(test_ali_overlap, name)(seed, count)


def _written_views(number: int) -> None:
    from tests.stages.s7_simplify.test_few_nodes import check_written_views

    check_written_views(number)


def _stage_laws(seed: int) -> None:
    """The laws of single stages, on the journeys of a few random programs."""
    from tests.mutation.programs import some_journeys
    from tests.stages import test_properties

    found = some_journeys(seed, EXAMPLES)
    module: Any = test_properties
    module.journeys, module.ENOUGH = (lambda: found), -1
    for name in _STAGE_LAWS:
        getattr(module, name)()


_STAGE_LAWS = (
    "test_functionalize_gives_a_pure_graph",
    "test_functionalize_computes_what_the_imperative_graph_computes",
    "test_functionalize_leaves_a_pure_graph_alone",
    "test_simplify_keeps_results",
    "test_simplify_twice_is_simplify_once",
    "test_results_have_memory_of_their_own",
    "test_partition_halves_together_are_the_joint_graph",
    "test_joint_has_a_gradient_where_eager_has_one",
    "test_continuing_the_tape_is_interpreting_under_it",
    "test_analyze_says_what_eager_does",
)

# --------------------------------------------------------------------------------------- exhaustive
_LAYOUT = (
    "test_contiguous_strides_enumerate_addresses_in_order",
    "test_is_contiguous_says_that_addresses_are_in_order_without_gaps",
    "test_is_dense_says_that_each_address_of_the_span_is_one_element",
    "test_span_counts_from_the_first_address_to_the_last",
    "test_view_strides_show_the_same_addresses_in_the_same_order",
    "test_contiguous_layout_is_viewable_in_every_shape",
    "test_clone_strides_are_dense_keep_dense_ones_and_keep_the_order",
    "test_elementwise_strides_of_one_order_keep_that_order",
    "test_permutation_sorts_the_dimensions_by_stride",
    "test_same_order_is_equality_of_the_rank_of_addresses_for_dense_layouts",
    "test_broadcast_shapes_equals_numpys",
    "test_wrap_dims_keeps_the_order_and_refuses_a_repeat",
    "test_strides_do_not_depend_on_which_objects_sizes_are",
)
_LAYOUT_OF_TORCH = (
    "test_layout_predicates_equal_pytorchs",
    "test_view_strides_equal_pytorchs",
    "test_clone_strides_equal_pytorchs",
    "test_elementwise_strides_of_one_operand_equal_pytorchs",
    "test_elementwise_strides_of_several_operands_equal_pytorchs",
)
"""Eager and compiled functions share these answers, so that no comparison of the two shows them."""
_EXHAUSTIVE = {
    "tests.ir.geometry.test_layout": (*_LAYOUT, *(_LAYOUT_OF_TORCH if find_spec("torch") else ())),
    "tests.rules.test_ali_ndarrays": (
        "test_parts_of_one_array_are_one_memory_where_elements_fall_on_elements",
        "test_tensors_over_parts_of_one_array_are_refused_if_they_overlap_and_one_is_written",
    ),
    "tests.rules.test_ali_overlap": (
        "test_the_equation_is_solved_near_its_corners_too",
        "test_the_equation_is_solved_for_numbers_of_any_size",
        "test_the_equation_is_solved_at_the_ends_of_its_bounds_for_numbers_of_any_size",
        "test_a_search_visits_each_step_of_a_range",
        "test_beyond_rank_six_a_search_that_is_short_is_exact",
        "test_of_one_dtype_bytes_overlap_where_elements_do_beyond_rank_six_too",
    ),
    "tests.rules.test_cap_places": (
        "test_a_tensor_that_cannot_be_found_again_is_refused",
        "test_what_methods_read_is_found_whatever_the_module_of_their_class_is_called",
    ),
    "tests.rules.test_fun_reach": ("test_windows_with_gradients_reach_as_far_as_their_base",),
    "tests.rules.test_grd_values": (
        "test_whole_numbers_of_any_size_are_told_apart",
        "test_what_cannot_be_guarded_is_refused_by_the_name_of_its_place",
        "test_an_entry_says_what_it_found_and_what_it_was_made_for",
        "test_hooks_are_asked_of_what_a_call_saves_once_each",
        "test_the_source_of_a_run_time_function_is_what_python_finds",
        "test_the_line_that_writes_an_array_writes_it_with_any_library",
    ),
    "tests.rules.test_views_given": (
        "test_an_argument_of_any_kind_may_do_what_it_may_in_eager",
        "test_views_of_a_base_and_of_a_detached_part_of_it_lie_where_they_lie",
        "test_a_relative_that_is_met_after_a_write_was_written_too",
    ),
    "tests.rules.test_small_entries": (
        "test_empty_containers_beside_tensors_are_passed_and_given_back",
        "test_modules_are_told_apart_by_what_they_are_not_by_what_they_equal",
        "test_inputs_that_do_not_overlap_may_lie_anywhere_in_their_memory",
        "test_a_gradient_that_is_read_is_the_one_of_then_or_none",
        "test_a_backward_that_reaches_no_input_leaves_all_as_it_was",
        "test_the_run_time_function_has_the_functions_name_where_python_takes_it",
        "test_what_a_class_says_of_itself_is_not_what_its_objects_are_told_by",
        "test_what_aotlites_own_functions_read_is_none_of_the_functions_places",
        "test_views_that_are_given_back_have_the_facts_of_eagers",
        "test_results_on_parts_of_one_array_lie_on_it_in_any_order",
        "test_parts_of_an_array_in_rows_are_one_memory_and_of_others_none",
        "test_a_window_on_gaps_of_memory_made_inside_is_refused",
        "test_a_member_is_seen_in_its_base_by_the_views_by_which_it_was_taken",
        "test_a_leaf_is_written_by_a_backward_only_with_grad_mode_off",
        "test_memory_that_a_backward_writes_overlaps_nothing_by_ndarrays",
        "test_memory_that_was_saved_is_watched_where_it_is_left_behind",
        "test_writes_are_not_counted_of_inference_tensors_that_are_put_elsewhere",
        "test_what_is_put_onto_new_memory_has_the_history_that_is_written_there",
        "test_places_are_named_as_a_program_reaches_them",
        "test_beside_many_tensors_outside_another_form_of_an_argument_is_named_alone",
    ),
    "tests.rules.test_small_programs": (
        "test_copies_between_arguments_and_values_are_eagers",
        "test_what_grows_is_eagers_and_refused_only_beside_an_older_view",
        "test_gradients_to_a_history_and_to_the_leaf_in_its_place_are_refused_together_alone",
        "test_a_leaf_made_inside_is_refused_as_a_result_if_it_has_hooks",
    ),
    "tests.rules.test_small_changes": (
        "test_windows_are_refused_on_memory_from_before_it_grew_and_on_no_other",
        "test_reading_what_was_taken_before_is_refused_only_with_a_write_after_growing",
        "test_a_leaf_that_is_switched_off_and_on_is_the_leaf_that_it_was",
        "test_a_view_with_a_history_does_not_become_a_leaf",
        "test_a_view_is_of_the_argument_as_it_was_when_it_was_taken",
        "test_windows_on_the_memory_that_an_argument_was_put_onto",
        "test_windows_on_what_grew_of_one_element_for_all",
        "test_a_refused_history_names_the_argument_that_has_it",
        "test_a_view_of_a_leaf_in_another_window_is_refused",
        "test_a_view_of_what_detach_gave_is_refused_only_without_it",
        "test_hooks_on_views_are_run_however_far_the_result_is_from_its_base",
        "test_a_history_for_memory_that_overlaps_itself_is_refused_wherever_it_stands",
        "test_a_gradient_is_asked_for_inside_of_what_is_computed_inside",
        "test_what_is_written_with_a_history_on_new_memory_is_the_arguments",
        "test_counts_of_memory_that_tensors_of_its_own_were_put_onto_are_eagers",
        "test_a_view_of_a_leaf_that_is_put_elsewhere_is_refused_only_beside_its_family",
        "test_views_of_a_leaf_on_memory_that_gets_a_history_have_the_one_that_they_had",
        "test_what_is_copied_from_memory_that_is_written_later_is_what_was_there",
    ),
    "tests.stages.s7_simplify.test_few_nodes": (
        "test_what_is_copied_is_cast_and_expanded_only_where_it_differs",
        "test_each_result_of_an_op_with_several_is_memory_of_its_own",
        "test_windows_on_written_memory_are_refused_if_they_leave_it",
        "test_writes_are_dropped_behind_views_through_which_later_ones_go",
        "test_no_two_views_show_the_same",
        "test_two_views_that_show_the_same_are_one_where_nothing_else_is_to_do",
        "test_what_is_copied_from_a_result_does_not_come_to_lie_in_it",
        "test_parts_of_complex_numbers_are_told_apart_from_other_numbers",
        "test_gaps_are_not_looked_through",
        "test_the_record_of_a_partition_has_the_gradients_that_there_are",
        "test_the_record_of_a_view_says_in_which_mode_it_was_taken",
    ),
    "tests.stages.s7_simplify.test_lean_graphs": (
        "test_windows_on_memory_and_copies_for_strides_are_made_only_where_the_program_asks",
        "test_each_view_of_a_pure_graph_has_the_place_of_a_view_of_the_program",
        "test_a_view_of_everything_changes_no_pure_graph",
        "test_as_strided_on_a_value_that_was_copied_from_a_part",
        "test_bytes_as_another_dtype_are_copied_so_that_views_of_them_can_be_taken",
        "test_a_complex_value_is_written_through_its_parts_by_one_of_several_that_show_them",
        "test_of_writes_to_a_few_places_the_last_one_of_each_is_left",
        "test_nothing_is_left_of_a_view_of_everything",
        "test_what_is_written_to_one_place_twice_is_read_from_there",
        "test_the_record_of_an_argument_says_of_its_writes_what_they_are",
    ),
    "tests.stages.s7_simplify.test_windows": (
        "test_of_two_elements_only_the_written_one_is_read_from_the_write",
        "test_writes_and_slices_in_a_row_give_what_numpy_gives",
    ),
}


def _exhaustive() -> Iterator[Family]:
    for module, names in _EXHAUSTIVE.items():
        for name in names:
            yield Family(f"{module}.{name}", 1, partial(_whole, module, name))


def _whole(module: str, name: str, _: int) -> None:
    test = getattr(importlib.import_module(module), name)
    wanted = [importlib.import_module(each) for each in signature(test).parameters]
    test(*wanted)
