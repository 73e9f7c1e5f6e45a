"""Each rule of modules rejects a breach, and accepts correct modules."""

import pytest

from tests.house import rules
from tests.house.sources import Source


@pytest.mark.parametrize(
    "source",
    [
        "import ir",
        "import ir.op",
        "from backends import cpu",
        "import json, numpy as np, ir",
        "def f():\n    from ir.op import Op",
        "importlib.import_module('backends.cpu')",
    ],
)
def test_import_by_folder_name_is_found(source):
    assert 1 == len(list(rules.imports_by_folder_name(Source("tests.test_x", source))))


@pytest.mark.parametrize(
    "source",
    [
        "_lock = threading.Lock()",
        "x = attrs.field(factory=threading.RLock)",
        "from functools import cached_property, partial",
    ],
)
def test_lock_that_a_forked_child_would_find_held_is_found(source):
    assert 1 == len(list(rules.makes_a_lock(Source("aotlite.ir.x", source))))
    assert [] == list(rules.makes_a_lock(Source("aotlite.ir.forks", source)))


@pytest.mark.parametrize(
    "source", ["import aotlite.ir", "from aotlite import ir", "import irrational"]
)
def test_import_by_full_name_is_accepted(source):
    assert [] == list(rules.imports_by_folder_name(Source("tests.test_x", source)))


def test_import_of_torch_is_found():
    source = "def f():\n    from torch import fx"
    assert 1 == len(list(rules.imports_torch(Source("aotlite.x", source))))
    assert [] == list(rules.imports_torch(Source("aotlite.x", "import torchless")))


@pytest.mark.parametrize("module, found", [("aotlite.testing.x", 0), ("aotlite.x", 1)])
def test_import_of_torch_inside_a_function_of_testing_is_accepted(module, found):
    source = "def f():\n    import torch"
    assert found == len(list(rules.imports_torch(Source(module, source))))
    assert 1 == len(list(rules.imports_torch(Source(module, "import torch"))))


@pytest.mark.parametrize(
    "source",
    ["import torch", "t = pytest.importorskip('torch')", "try:\n    import torch\nfinally: pass"],
)
def test_import_of_torch_at_the_top_of_a_test_module_is_found(source):
    assert 1 == len(list(rules.hides_comparisons(Source("tests.ir.test_x", source))))
    assert [] == list(rules.hides_comparisons(Source("tests.helpers", source)))


def test_import_of_torch_inside_a_test_is_accepted():
    source = "def test_x(torch):\n    import torch.fx"
    assert [] == list(rules.hides_comparisons(Source("tests.ir.test_x", source)))


@pytest.mark.parametrize(
    "source",
    [
        "os.environ['HOME']",
        "os.environ.get('AOTLITE_DEBUG')",
        "os.getenv('CC', 'cc')",
        "os.getenv(name)",
        "from os import environ",
        "import os as system\nsystem.environ['HOME']",
        "run(env={**os.environ})",
        "os.environ['AOTLITE_LOG'] = '1'",
        "NAME = 'CC'\nos.environ.get(NAME)",
    ],
)
def test_use_of_another_environment_variable_is_found(source):
    assert 1 == len(list(rules.reads_another_variable(Source("aotlite.x", source))))


@pytest.mark.parametrize(
    "source",
    [
        "os.environ['AOTLITE_LOG']",
        "os.environ.get('AOTLITE_DUMP', '')",
        "os.getenv('AOTLITE_VERIFY')",
        "'AOTLITE_CACHE' in os.environ",
        "NAME = 'AOTLITE_CACHE'\nos.environ.get(NAME)",
    ],
)
def test_reading_one_of_the_four_variables_is_accepted(source):
    assert [] == list(rules.reads_another_variable(Source("aotlite.x", source)))


def test_the_environment_is_given_on_to_children_alone():
    rule = rules.reads_another_variable
    assert [] == list(rule(Source("aotlite.x", "run(env={**os.environ, 'TMPDIR': folder})")))
    for source in ("found = {**os.environ}", "run(env={**os.environ, 'A': os.environ['B']})"):
        assert 1 == len(list(rule(Source("aotlite.x", source))))


def test_a_standard_variable_is_read_by_its_module_alone():
    rule, source = rules.reads_another_variable, "os.environ.get('CC')"
    assert [] == list(rule(Source("aotlite.backends.native.compiler.compilers", source)))
    assert 1 == len(list(rule(Source("aotlite.backends.native.cache.trusted_folders", source))))


def test_only_the_doctor_shows_variables_of_others():
    rule, source = rules.reads_another_variable, "os.environ.get('CC')"
    assert [] == list(rule(Source(rules.SHOWS_THE_ENVIRONMENT, source)))
    assert 1 == len(list(rule(Source("aotlite.cli.doctor", source))))
