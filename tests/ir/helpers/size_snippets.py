"""Expressions of ints `n` and `m`: those that users write, and random ones."""

SNIPPETS = {
    "arithmetic of ints": """
        n + 3
        3 - n
        n * n - 2 * n
        -n
        +n
        ~n
        n // 4
        n % 4
        7 // (n + 1)
        n // -3
        n % -3
        5 // n
        5 % n
        n // 0
        divmod(n, 4)
        divmod(9, n)
        n ** 2
        2 ** n
        n ** n
        n ** -1
        n ** -n
        pow(n, 2)
        pow(n, 2, 7)
        pow(n, n, 7)
        pow(n, -1, 7)
        pow(n, 2, 0)
        n << 2
        n << n
        1 << n
        n >> 1
        40 >> n
        n << -1
        1 << -n
        1 << (3 - n)
        n & 3
        n & 6
        n & -2
        5 & n
        n & (n - 1) == 0
        (n & (n - 1)) == 0
        n | 1
        2 | n
        n ^ 5
        5 ^ n
        n ^ n
        abs(n - 4)
        round(n)
        round(n, 1)
        round(n, -1)
        round(n, None)
        round(n, n)
        round(n, 1.5)
        round(3.14159, n)
        (n + 1) // 2 * 2
        sum([n, 1, n])
        sum(range(n))
        math.prod((n, 3, n))
        n @ n
        """,
    "other numbers": """
        n + 0.5
        0.5 - n
        n * 1.5
        n / 4
        n / n
        4 / n
        n // 0.5
        n % 2.5
        2.5 % n
        divmod(n, 2.5)
        divmod(7.5, n)
        n ** 0.5
        (n - 3) ** 0.5
        0.5 ** n
        -0.0 - n
        -0.0 + n
        -0.0 * n
        n * math.inf
        n + math.nan
        n + True
        True - n
        n * True
        n // True
        n % True
        True // n
        n ** True
        True << n
        n << True
        n & True
        n | False
        n / True
        n + 1j
        1j - n
        n * 1j
        n / 2j
        n ** 1j
        n == 6 + 0j
        n + fractions.Fraction(1, 2)
        fractions.Fraction(1, 2) - n
        n * fractions.Fraction(2, 3)
        fractions.Fraction(n, 4)
        fractions.Fraction(n)
        n / fractions.Fraction(2, 3)
        n // fractions.Fraction(2, 3)
        n ** fractions.Fraction(2)
        fractions.Fraction(2, 3) ** n
        n < fractions.Fraction(7, 2)
        n == fractions.Fraction(12, 2)
        n + decimal.Decimal("1.5")
        decimal.Decimal("1.5") - n
        decimal.Decimal(7) / n
        n % decimal.Decimal(4)
        n ** decimal.Decimal(2)
        n > decimal.Decimal("2.5")
        decimal.Decimal("6") == n
        n + Own(3)
        Own(3) + n
        n * Own(3)
        n == Own(6)
        n + Level.HIGH
        n // Level.HIGH
        n == Level.HIGH
        Level.HIGH - n
        n * Scaled(2)
        Scaled(2) * n
        n == Scaled(6)
        n in [Scaled(2), Scaled(6)]
        n + "a"
        "a" + n
        n + None
        n - [1]
        float(n)
        complex(n)
        complex(1, n)
        int(n)
        bool(n)
        math.trunc(n)
        """,
    "comparisons": """
        n == 6
        n != 6
        n > 3
        3 < n < 8
        1 <= n <= 2
        3 > n != 1
        n == n + 0
        n == 6.0
        n < 2.5
        2.5 < n
        n > math.inf
        n == math.nan
        n == True
        n == False
        True < n
        n == "6"
        n == None
        n != None
        n < "6"
        n < None
        n is None
        n == (6,)
        (n > 3) is True
        (n > 3) is False
        (n == 6) == True
        (n > 3) + 1
        (n > 3) + (n > 5)
        (n > 3) & (n < 8)
        (n > 3) | False
        (n > 3) ^ True
        ~(n > 3)
        -(n > 3)
        not n > 3
        (n > 3) * 2.5
        [n > 3, n > 5].count(True)
        sum(n > k for k in range(4))
        ["few", "many"][n > 3]
        {True: "many", False: "few"}[n > 3]
        hash(n > 3)
        str(n > 3)
        f"{n > 3!r:>7}"
        isinstance(n > 3, bool)
        type(n > 3) is bool
        json.dumps(n > 3)
        int(n > 3)
        (n, 3) == (6, 3)
        (n, 3) != (2,)
        (n, 3) < (4, 1)
        [n, 3] == [6, 3]
        {"a": n} == {"a": 6}
        (n, 3) in [(2, 3), (6, 3)]
        n in (5, 6)
        n in [0.5, 2.0, "a", None]
        n in range(2, 9, 2)
        n not in range(3)
        n in "6"
        n and 7
        n or 7
        "even" if n % 2 == 0 else "odd"
        all([n, n - 1])
        any([n, n > 3])
        not n
        """,
    "least and greatest": """
        min(n, 3)
        max(n, 3)
        max(n, 3, key=lambda k: -k)
        min([n, 4, 2])
        max(n, 2.5)
        min((n, "a"), (6, "b"))
        sorted([4, n, 1])
        sorted([4, n, 1], key=lambda k: k % 3)
        sorted([n, 2.5, True], reverse=True)
        sorted("abc", key=lambda c: n)
        [3, n, 6].index(6)
        [3, n, 6].count(n)
        bisect.bisect([1, 3, 5], n)
        functools.reduce(operator.mul, [n, n, 2])
        functools.reduce(max, [n, 3, 5])
        max([], default=n)
        """,
    "ranges and sequences": """
        list(range(n))
        range(n)
        len(range(n))
        range(1, n, 2)[-1]
        range(9)[n]
        range(n, 0, -1)
        n in range(n)
        list(range(12))[n]
        list(range(12))[-n]
        list(range(12))[n:]
        list(range(12))[:n]
        list(range(12))[::n]
        list(range(12))[1:n:2]
        "abc"[n]
        "abcdefgh"[n // 2:n]
        (1, 2, 3)[n]
        slice(n).indices(10)
        slice(1, n)
        slice(1, n) == slice(1, 6)
        [0] * n
        n * [1, 2]
        (n,) * 2
        "ab" * n
        n * "ab"
        b"x" * n
        bytes(n)
        bytes([n, 1])
        bytearray(n)
        bytearray(b"abc") * n
        [0, 1] * -n
        list(zip(range(n), "abcd"))
        list(enumerate("ab", n))
        list(itertools.islice(itertools.count(), n))
        list(itertools.repeat("a", n))
        list(itertools.islice(itertools.count(n), 3))
        list(itertools.combinations(range(4), n))
        list(itertools.product(range(2), repeat=n % 3))
        list(itertools.accumulate([n, 1, n]))
        list(itertools.chain([n], range(n)))
        [i * n for i in range(3)]
        {i: i * n for i in range(3)}
        list(map(lambda k: k + n, (1, 2)))
        list(filter(None, [n, 0, n - 1]))
        list(reversed([n, 1]))
        [*range(n), n]
        iter(n)
        len(n)
        n[0]
        list(n)
        n()
        list(divmod(n, 3))
        operator.itemgetter(n)([1, 2, 3])
        operator.length_hint(range(n))
        array.array("i", [n, 2])
        array.array("d", [n])
        memoryview(b"abcdefghijkl")[n]
        collections.deque([1, 2, 3], 2).rotate(n)
        textwrap.wrap("a few words of text", n)
        "a-b-c-d".split("-", n)
        "aaaa".replace("a", "b", n)
        "abcabc".find("c", n)
        """,
    "hashes": """
        hash(n)
        hash((n, 3))
        n in {5, 6}
        n in frozenset([2, 6])
        {5: "five", 6: "six"}.get(n)
        {5: "five", 6: "six"}[n]
        {6: "a", n: "b"}
        {n: 1, 2: 2}
        {n, 2, 6}
        len({n, 2, 6})
        {n} == {6}
        {n} | {1, 2}
        {n}.isdisjoint({2, 6})
        dict.fromkeys([n, 6], 0)
        dict([(n, "a")])
        collections.Counter([n, 6, n])
        collections.Counter([n, 6, n]) == collections.Counter([6, 6, 6])
        collections.defaultdict(list, {6: [1]})[n]
        collections.OrderedDict({6: 1}) == {n: 1}
        collections.ChainMap({6: 1}, {2: 3})[n]
        {Key(6): "six"}.get(Key(n))
        Key(n) == Key(6)
        Key(n) < Key(3)
        {Pair(n, 2): 1}.get((6, 2))
        hash(Key(n)) == hash(Key(6))
        hash(range(n)) == hash(range(6))
        Level(n)
        Side(n)
        cached(n)
        cached_shapes(n)
        remembered(n)
        {n: n}.pop(6, None)
        set(range(4)).difference([n])
        n.__hash__() == hash(6)
        """,
    "matches": """
        classify(n)
        classify(n + 0)
        classify_pair(n)
        classify_truth(n)
        classify_mapping(n)
        """,
    "texts": """
        str(n)
        repr(n)
        str(n + 1)
        f"{n}"
        f"{n!r}"
        f"{n!s:>4}"
        f"{n:03d}"
        f"{n:,}"
        f"{n:x}"
        f"{n:.2f}"
        f"{n:e}"
        f"{n:%}"
        f"{n:c}"
        f"{n:<{n}}"
        f"{n=}"
        f"{n:s}"
        f"{(n, 3)}"
        format(n)
        format(n, "b")
        format(n, "")
        "%d" % n
        "%5d|%-5d|%05d" % (n, n, n)
        "%s and %r" % (n, n)
        "%x %o %i" % (n, n, n)
        "%.3f %g" % (n, n)
        "%c" % (n + 65)
        "%(n)d" % {"n": n}
        b"%d" % n
        "{}".format(n)
        "{:>5}".format(n)
        "{0.real}".format(n)
        "{n:{w}}".format(n=n, w=n)
        string.Template("$n rows").substitute(n=n)
        str((n, 3))
        str([n, (n,)])
        repr({"n": n, n: 1})
        repr({n})
        str(slice(n))
        str(range(n))
        repr(Key(n))
        repr(Pair(n, 2))
        ", ".join(map(str, (n, 2)))
        ascii(n)
        bin(n)
        hex(n)
        oct(n)
        chr(n + 65)
        "a".center(n)
        "7".zfill(n)
        "a\\tb".expandtabs(n)
        str(n).isdigit()
        int(str(n))
        pprint.pformat({"n": [n, n]})
        printed(n)
        logged(n)
        str(ValueError(n))
        repr(KeyError(n))
        print(n)
        """,
    "classes": """
        isinstance(n, int)
        isinstance(n, (str, int))
        isinstance(n, int | None)
        isinstance(n, float)
        isinstance(n, bool)
        isinstance(n, object)
        isinstance(n, numbers.Integral)
        isinstance(n, numbers.Number)
        isinstance(n, numbers.Rational)
        isinstance(n, typing.SupportsIndex)
        isinstance(n, typing.SupportsFloat)
        isinstance(n, collections.abc.Hashable)
        isinstance(n, collections.abc.Iterable)
        isinstance(n, (list, tuple))
        isinstance(n, Own)
        issubclass(n.__class__, int)
        n.__class__ is int
        n.__class__.__name__
        n.__class__("12")
        kind(n)
        kind(n + 1)
        kind(n / 2)
        callable(n)
        hasattr(n, "shape")
        hasattr(n, "bit_length")
        getattr(n, "dtype", "none")
        checked(n)
        """,
    "math and operator": """
        math.sqrt(n)
        math.floor(n)
        math.ceil(n)
        math.trunc(n)
        math.gcd(n, 4)
        math.lcm(n, 4)
        math.factorial(n)
        math.comb(n, 2)
        math.perm(n, 2)
        math.isqrt(n)
        math.log(n + 1)
        math.log2(n)
        math.log(8, n)
        math.exp(n)
        math.pow(n, 2)
        math.fmod(n, 4)
        math.hypot(n, 3)
        math.dist((n, 0), (0, 3))
        math.copysign(1.0, n)
        math.isclose(n, 6)
        math.isfinite(n)
        math.fsum([n, 0.5])
        math.sin(n)
        math.fabs(n)
        math.modf(n)
        math.frexp(n)
        operator.index(n)
        operator.add(n, 1)
        operator.truediv(n, 4)
        operator.neg(n)
        operator.not_(n)
        operator.truth(n)
        operator.eq(n, 6)
        operator.contains([6], n)
        operator.mod("%d", n)
        operator.methodcaller("bit_length")(n)
        operator.attrgetter("real")(n)
        """,
    "methods of int": """
        n.bit_length()
        n.bit_count()
        n.to_bytes(2, "big")
        n.to_bytes(length=n, byteorder="little")
        n.conjugate()
        n.as_integer_ratio()
        n.real
        n.imag
        n.numerator
        n.denominator
        n.from_bytes(b"\\x01\\x02", "big")
        n.__index__()
        n.__int__()
        n.__float__()
        n.__bool__()
        n.__floor__()
        n.__add__(1)
        n.__repr__()
        n.__format__("03d")
        n.__round__()
        n.__eq__(6)
        (n + 1).bit_length()
        n.shape
        n.append(1)
        """,
    "copies": """
        copy.copy(n)
        copy.deepcopy(n)
        copy.deepcopy([n, {"a": n}])
        pickle.loads(pickle.dumps(n))
        pickle.loads(pickle.dumps((n, [n], n > 3)))
        pickle.loads(pickle.dumps({n: n}, protocol=0))
        copy.copy(n > 3)
        struct.pack("<i", n)
        struct.pack("<f", n)
        struct.pack(f"{n}s", b"abc")
        dataclasses.replace(Key(1), size=n)
        dataclasses.asdict(Key(n))
        datetime.date(2020, n, 1)
        datetime.timedelta(1) * n
        n * datetime.timedelta(1)
        datetime.timedelta(1) / n
        datetime.timedelta(1) // n
        ctypes.create_string_buffer(8)[n]
        ctypes.c_int(n).value
        """,
    "NumPy": """
        np.array(n)
        np.array([n, 2])
        np.array([[n, 1], [2, n]])
        np.array([n, 2.5])
        np.array([n, np.float32(1)])
        np.array(n, dtype=np.float32)
        np.array([n], dtype=np.uint8)
        np.array([n * 100], dtype=np.uint8)
        np.array([n > 3, True])
        np.asarray(n)
        np.int64(n)
        np.int32(n)
        np.float32(n)
        np.uint8(n)
        np.bool_(n)
        np.zeros(n)
        np.ones((n, 2))
        np.empty((2, n)).shape
        np.full((2,), n)
        np.full(2, n, np.float32)
        np.full(2, n * 100, dtype=np.uint8)
        np.eye(n)
        np.linspace(0, n, 3)
        np.linspace(0, 1, n)
        np.arange(12)[n]
        np.arange(12)[:n]
        np.arange(12)[[n, 1]]
        np.arange(12)[n - 12]
        np.arange(12).reshape(n, -1)
        np.arange(12).reshape((3, n))
        np.arange(12) + n
        n + np.arange(3)
        np.arange(3) * n
        np.arange(3, dtype=np.float32) / n
        np.arange(3, dtype=np.uint8) + n
        np.arange(3, dtype=np.int8) * n
        n ** np.arange(3)
        np.arange(9) == n
        n > np.arange(9)
        np.int64(3) + n
        n + np.int64(3)
        np.float32(3) * n
        n * np.float32(3)
        np.float32(3) / n
        n - np.uint8(3)
        np.uint8(3) - n
        n == np.int64(6)
        np.int64(6) == n
        n < np.float64(2.5)
        np.bool_(True) + n
        np.add(n, 1)
        np.add(np.ones(2, np.float32), n)
        np.multiply.outer(np.arange(2), n)
        np.sqrt(n)
        np.maximum(n, 3)
        np.prod((n, 3))
        np.sum([n, n])
        np.mean([n, 2])
        np.where(np.array([True, False]), n, np.ones(2, np.float32))
        np.clip(np.arange(9), 0, n)
        np.repeat(np.arange(3), n)
        np.tile([1, 2], n)
        np.pad(np.ones(2), n).shape
        np.concatenate([np.zeros(n), [n]])
        np.stack([np.arange(2)] * n)
        np.broadcast_to(np.ones(1), (n,))
        np.roll(np.arange(5), n)
        np.isscalar(n)
        np.result_type(np.float32(1), n)
        list(np.ndindex(n, 2))
        np.unravel_index(n, (3, 4))
        np.random.RandomState(n).randint(9)
        np.ones((2, 3)).shape == (2, n)
        np.searchsorted([1, 3, 5], n)
        np.isin(n, [2, 6])
        stored_in_array(n)
        np.array([1.5]).round(n)
        np.array2string(np.array(n))
        """,
    "statements": """
        counted(n)
        halved(n)
        summed_down(n)
        with_else(n)
        asserted(n)
        message_of(n)
        walrus(n)
        default(n)
        nonlocal_count(n)
        written_in_place(n)
        generated(n)
        unpacked(n)
        bits(n)
        (lambda *args, **kwargs: (args, kwargs))(n, k=n)
        (lambda a, /, b=2, *, c=3: a + b + c)(n, c=n)
        eval("n + 1", {"n": n})
        exec("n + 1", {"n": n})
        [i for i in range(9) if i > n]
        [(i, j) for i in range(n) for j in range(i)]
        next((i for i in range(9) if i == n), None)
        """,
    "the library": """
        with_global_state(n)
        random.Random(n).random()
        random.Random(3).randrange(n)
        random.Random(3).randint(0, n)
        random.Random(3).sample(range(9), n)
        random.Random(3).choices(range(9), k=n)
        statistics.median([n, 2, 4])
        functools.partial(operator.add, n)(1)
        functools.partial(pow, n)(2)
        list(zip(*[iter(range(6))] * n))
        queue.Queue(n).maxsize
        calendar.monthrange(2020, n)
        str(ipaddress.ip_address(n))
        heapq.nsmallest(n, [3, 1, 2])
        re.sub("a", "b", "aaaa", n)
        io.BytesIO(b"abc").read(n)
        str(uuid.UUID(int=n))
        urllib.parse.urlencode({"n": n})
        cmath.sqrt(n)
        """,
}
RAISING = """
    json.dumps(n)
    json.dumps({"n": n}, indent=1)
    json.dumps({n: 1})
    marshal.dumps(n)
    sqlite3.connect(":memory:").execute("select ?", (n,)).fetchall()
    decimal.Decimal(n)
    round(decimal.Decimal("1.23456"), n)
    datetime.timedelta(days=n)
    math.ldexp(1.0, n)
    pow(2, n, 7)
    pow(2, 3, n + 1)
    "%*d" % (n, 5)
    collections.deque([1, 2], n)
    statistics.mean([n, 2])
    int.bit_length(n)
    int.__add__(n, 1)
    np.datetime64(n, "D")
    np.random.permutation(n)
    np.random.default_rng(n).integers(9)
    """
"""What looks at the type of an object and wants an int: it raises, though eager does not."""
DIFFERENT = """
    type(n) is int
    type(n).__name__
    n is 6
    pickle.dumps(n)
    random.Random(-n).random()
    np.void(n)
    sys.getsizeof(n)
    weakref.ref(n)() == n
    """
"""What looks at the object itself: an answer of its own, without an assumption."""


_UNARY = ("abs", "int", "bool", "float", "str", "hash", "round", "repr", "~", "-", "not ", "+")
_BINARY = ("+", "-", "*", "//", "%", "/", ">>", "&", "|", "^")
_RELATIONS = ("==", "!=", "<", "<=", ">", ">=")
_SIGNS = (*_BINARY, *_BINARY, *_RELATIONS, *_RELATIONS, "and", "or")
_FORMS = (
    *[f"({{}} {sign} {{}})" for sign in _SIGNS],
    *[f"({function}({{}}))" for function in _UNARY],
    *["({} < {} <= {})", "({} == {} == {})", "({} if {} else {})", "({} % 3 << {} % 5)"],
    *["min({}, {})", "max({}, {}, {})", "sum([{}, {}])", "divmod({}, {})", "round({}, {})"],
    *["({} in {{{}, {}}})", "({} in [{}, {}])", "{{{}: {}, 3: 4}}.get({})", "({} % 7) ** ({} % 4)"],
    *["'abcdefgh'[{}]", "'abcdefgh'[{}:{}]", "isinstance({}, int)", "len([{}] * ({}))"],
)
_LEAVES = (*"nnnmm012359", "-1", "-4", "True", "2.5", "None", "1j")


def random_expression(draw, depth):
    """A random expression of `n` and `m`; `draw` is a `random.Random`."""
    if not depth or draw.random() < 0.1:
        return draw.choice(_LEAVES)
    form = draw.choice(_FORMS)
    count = form.replace("{{", "").replace("}}", "").count("{}")
    return form.format(*[random_expression(draw, depth - 1) for _ in range(count)])
