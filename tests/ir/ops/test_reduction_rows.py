"""Rows of reductions and scans: one row in one file gives everything that is asked of an op."""

import importlib
import sys

import numpy as np
import pytest

import aotlite as al
from aotlite.backends.cpu.emit.c_program import print_units
from aotlite.eager.creation.from_data import call
from aotlite.inspect import stages_of
from aotlite.ir.op import OPS
from aotlite.ir.op.composite import COMPOSITES
from aotlite.ir.op.operand import Operand
from aotlite.subclasses.masked import MaskedTensor
from aotlite.testing.laws import check_op
from aotlite.testing.laws.samples.sample import Sample
from tests.backends.cpu.helpers.printing import Compiled
from tests.backends.cuda.helpers.hosted import FORWARD, Hosted, compiler
from tests.backends.loops.helpers.lowering import program_of
from tools import ops_table

ROWS = '''
from aotlite.ir.ops.kinds import require_inexact, require_real
from aotlite.ir.ops.reduce.dims import spread
from aotlite.ir.ops.reduction_rows import BY_MAX, BY_SUM, reduction, scan

PEAK = scan(
    "peak_of_a_test",
    result=require_real,
    combiner=BY_MAX,
    vjp=lambda grad, self, dim: (
        grad.new_zeros(self.shape).scatter_add(dim, self.cummax(dim)[1], grad)
    ),
)
"""The greatest element so far."""
ENERGY = reduction(
    "energy_of_a_test",
    result=require_inexact,
    as_=lambda self, dim=None, keepdim=False: (self * self).sum(dim, keepdim),
    vjp=lambda grad, self, dim, keepdim: spread(grad, self.meta, dim, keepdim) * self * 2,
    joins="sum",
)
"""The sum of the squares."""
'''
