"""What the snippets of `size_snippets` make use of, as a user writes it, beside the modules."""

# ruff: noqa: F401  (snippets use the modules)

import array
import bisect
import calendar
import cmath
import collections
import copy
import ctypes
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import heapq
import io
import ipaddress
import itertools
import json
import logging
import marshal
import math
import numbers
import operator
import pickle
import pprint
import queue
import random
import re
import sqlite3
import statistics
import string
import struct
import sys
import textwrap
import typing
import urllib.parse
import uuid
import weakref

import numpy as np


class Own(int):
    """An int with arithmetic of its own."""

    def __add__(self, other):
        return "left", int(other)

    def __radd__(self, other):
        return "right", int(other)


class Scaled:
    """A number of another kind, which knows what to do with an int."""

    def __init__(self, factor):
        self.factor = factor

    def __rmul__(self, other):
        return self.factor * other

    __mul__ = __rmul__

    def __eq__(self, other):
        return isinstance(other, int) and other == self.factor


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 6


class Side(enum.Enum):
    LEFT = 1
    RIGHT = 2


@dataclasses.dataclass(frozen=True, order=True)
class Key:
    size: int
    name: str = "k"


class Pair(typing.NamedTuple):
    first: int
    second: int


@functools.singledispatch
def kind(value):
    return "object"


kind.register(int)(lambda value: "int")
kind.register(float)(lambda value: "float")


def classify(n):
    match n:
        case 0 | 1:
            return "few"
        case 6:
            return "six"
        case int(k) if k > 7:
            return k - 7
        case int():
            return "some"
        case _:
            return "no int"


def classify_pair(n):
    match (n, n + 1):
        case (0, _):
            return "none"
        case (a, 7):
            return a
        case [a, b]:
            return a * b


def classify_truth(n):
    match n > 4:
        case True:
            return "more"
        case False:
            return "less"


def classify_mapping(n):
    match {"size": n}:
        case {"size": 2}:
            return "two"
        case {"size": int(k)}:
            return k


def counted(n):
    total = 0
    for i in range(n):
        total += i * n
    return total


def halved(n):
    steps = 0
    while n > 1:
        n, steps = n // 2, steps + 1
    return steps


def summed_down(n):
    i, total = 0, 0
    while i < n:
        total, i = total + i, i + 1
    return total


def with_else(n):
    for i in range(2, n):
        if n % i == 0:
            return i
    else:
        return n


def asserted(n):
    assert n > 3, f"{n} is too few"
    return n * 2


def message_of(n):
    try:
        asserted(n)
    except AssertionError as error:
        return str(error)
    return "enough"


def checked(n):
    if not isinstance(n, int) or isinstance(n, bool):
        raise TypeError(f"{n!r} is no int")
    if n < 2:
        raise ValueError(n)
    return n


def walrus(n):
    return [m, m * 2] if (m := n // 2) > 1 else m


def default(n, *, of=3):
    def inner(a, b=n, *rest, c=n + 1, **more):
        return a + b + c + len(rest) + len(more)

    return inner(of), inner(of, of), inner(n, c=0)


def nonlocal_count(n):
    def step():
        nonlocal n
        n += 1
        return n

    return step() + step()


def cached(n):
    calls = []

    @functools.lru_cache
    def twice(k, by=2):
        calls.append(1)
        return k * by

    return twice(n, 2), twice(int(n), 2), twice(n, by=2), twice(6, 2), len(calls)


def cached_shapes(n):
    cache = {(6, 3): "first", (2, 3): "second"}
    shape = (n, 3)
    if shape not in cache:
        cache[shape] = "new"
    return cache[shape], len(cache)


def remembered(n):
    known = {}
    known[n] = "a"
    known.setdefault(6, "b")
    known[int(n) + 0] = "c"
    return sorted(known.items())


def logged(n):
    stream = io.StringIO()
    logger, handler = logging.Logger("sizes"), logging.StreamHandler(stream)
    logger.addHandler(handler)
    logger.warning("%d rows, %s of %r and %05.1f", n, n, (n, 2), n)
    logger.error(f"{n} %s", n > 3)
    return stream.getvalue()


def printed(n):
    stream = io.StringIO()
    print(n, (n, 3), [n], {"n": n}, n > 4, sep="|", file=stream)
    return stream.getvalue()


def written_in_place(n):
    values = list(range(12))
    values[n] = -1
    values[n:] = [n]
    del values[:n]
    return values


def stored_in_array(n):
    found = np.zeros(12, np.uint8)
    found[n] = n
    found[:n] += n
    found[n:] = n * 3
    return found


def generated(n):
    def rows():
        yield n
        yield from range(n)

    return list(rows())


def unpacked(n):
    first, *rest = range(n)
    return first, rest


def bits(n):
    return [k for k in range(4) if n >> k & 1]


def with_global_state(n):
    random.seed(n)
    return random.random()
