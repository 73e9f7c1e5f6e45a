"""States in files: what comes back, and what is refused."""

import io
import struct
import zipfile

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite import nn
from aotlite.ir.errors import ArgumentError, FormatError

STATE = {
    "weight": al.tensor(np.arange(6.0).reshape(2, 3)).t(),
    "file": al.tensor(3),
    "empty": al.zeros(0, 2),
    "flag": al.tensor([True, False]),
    "deep.name@here": al.from_numpy(np.array([1.5, -2.0], ml_dtypes.bfloat16)),
    "wave": al.tensor([1 + 2j]),
    "weight@x": al.ones(2),
    "a@bfloat16": al.tensor([1, 255], dtype=al.uint8),
    "twice@bfloat16@": al.tensor([True]),
    "@": al.from_numpy(np.array([3.0], ml_dtypes.bfloat16)),
    "": al.zeros(1),
}


@pytest.fixture
def path(tmp_path):
    """Where a file may be written."""
    return tmp_path / "state.npz"


def test_a_state_comes_back_with_names_dtypes_and_values(path):
    nn.save_state(STATE, path)
    loaded = nn.load_state(path)
    assert list(loaded) == list(STATE)
    for name, tensor in STATE.items():
        assert (loaded[name].shape, loaded[name].dtype) == (tensor.shape, tensor.dtype)
        assert loaded[name].tolist() == tensor.tolist()


def test_what_is_loaded_can_be_written(path):
    nn.save_state(STATE, path)
    loaded = nn.load_state(path)["weight"]
    before = loaded.tolist()
    loaded.add_(1)
    assert before != loaded.tolist() == (al.tensor(before) + 1).tolist()


def test_a_network_takes_its_state_from_a_file(path):
    net, other = nn.Sequential(nn.Linear(3, 2)), nn.Sequential(nn.Linear(3, 2))
    nn.save_state(net.state_dict(), path)
    other.load_state_dict(nn.load_state(path))
    x = al.rand(4, 3)
    assert net(x).tolist() == other(x).tolist()


def test_equal_states_make_equal_files(path):
    nn.save_state(STATE, path)
    first = path.read_bytes()
    nn.save_state(STATE, path)
    assert path.read_bytes() == first


def test_numpy_reads_our_files_and_we_read_its(path):
    nn.save_state({"weight": STATE["weight"]}, path)
    with np.load(path, allow_pickle=False) as archive:
        assert archive["weight"].tolist() == STATE["weight"].tolist()
    np.savez(path, a=np.asfortranarray(np.arange(6).reshape(2, 3)))
    assert nn.load_state(path)["a"].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_a_failed_save_leaves_the_old_file_and_no_other(path):
    nn.save_state(STATE, path)
    before = path.read_bytes()
    with pytest.raises(ArgumentError, match="save_state: 'b' is 3, expected a tensor"):
        nn.save_state({"a": al.ones(2), "b": 3}, path)
    with pytest.raises(UnicodeEncodeError):
        nn.save_state({"a": al.ones(2), "\ud800": al.ones(2)}, path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({1: al.ones(2)}, "save_state: a name is 1, expected a string without NUL"),
        ({"a\0b": al.ones(2)}, r"save_state: a name is 'a\\x00b', expected a string without NUL"),
        ([1], r"save_state: the state is \[1\], expected tensors by name"),
    ],
)
def test_a_state_that_has_no_names_is_refused(path, state, message):
    with pytest.raises(ArgumentError, match=message):
        nn.save_state(state, path)
    assert not path.exists()


def member(shape=(2,), data=b"\0" * 16, descr="'<f8'", version=1):
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}".encode()
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H", len(header)) + header + data


def archive_of(*members, compression=zipfile.ZIP_STORED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return file.getvalue()


HOSTILE = {
    "no archive": b"hello",
    "nothing": b"",
    "truncated": archive_of(("a.npy", member()))[:-30],
    "no array": archive_of(("a.npy", b"\x93NUMPY")),
    "another member": archive_of(("a.txt", b"hello")),
    "compressed": archive_of(("a.npy", member()), compression=zipfile.ZIP_DEFLATED),
    "objects": archive_of(("a.npy", member(descr="'|O'", data=b"\0" * 16))),
    "records": archive_of(("a.npy", member(descr="[('x', '<f8')]"))),
    "big-endian": archive_of(("a.npy", member(descr="'>f8'"))),
    "huge shape": archive_of(("a.npy", member(shape=(1 << 40,)))),
    "overflowing shape": archive_of(("a.npy", member(shape=(1 << 62, 1 << 62)))),
    "negative shape": archive_of(("a.npy", member(shape=(-1, -2)))),
    "two bytes too many": archive_of(("a.npy", member(data=b"\0" * 18))),
    "a bool of 2": archive_of(("a.npy", member(descr="'|b1'", data=b"\1\2"))),
    "a bool of 2 in bytes": archive_of(("a@bool.npy", member(descr="'|u1'", data=b"\2\3"))),
    "a bool of 2 with its dtype": archive_of(("a@bool.npy", member(descr="'|b1'", data=b"\1\2"))),
    "bits of another dtype": archive_of(("a@float64.npy", member(descr="'<u8'"))),
    "an expression": archive_of(("a.npy", member(shape="(2,), 'x': print(1)"))),
    "a later version": archive_of(("a.npy", member(version=9))),
    "an unknown dtype": archive_of(("a@float3.npy", member())),
    "a header that ends in a text": archive_of(("a.npy", member(descr="'''f8"))),
    "a header that ends in brackets": archive_of(("a.npy", member(shape="(2,), ("))),
    "a wide bfloat16": archive_of(("a@bfloat16.npy", member(descr="'<u8'"))),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_file_that_is_no_state_is_refused(path, data):
    path.write_bytes(data)
    with pytest.raises(FormatError, match=r"load_state: .*state\.npz is no readable state"):
        nn.load_state(path)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_that_comes_twice_is_refused(path):
    path.write_bytes(archive_of(("a.npy", member()), ("a.npy", member())))
    with pytest.raises(FormatError, match="has a name twice"):
        nn.load_state(path)


def test_members_that_share_their_bytes_are_refused(path):
    """A small file that reads as a large one: every name points at the same member."""
    once = archive_of(("a.npy", member(shape=(1024,), data=b"\0" * 8192)))
    size, start = struct.unpack("<II", once[-10:-2])
    directory, end = once[start : start + size], once[start + size :]
    names = [directory.replace(b"a.npy", b"%c.npy" % (98 + i)) for i in range(8)]
    end = end[:8] + struct.pack("<HHII", 9, 9, 9 * size, start) + end[20:]
    path.write_bytes(once[:start] + directory + b"".join(names) + end)
    with pytest.raises(FormatError, match="its members claim"):
        nn.load_state(path)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damage_is_refused_or_harmless(path, data):
    good = archive_of(("a.npy", member()), ("b.npy", member(descr="'|b1'", data=b"\0\1")))
    places = st.integers(0, len(good) - 1)
    damage = data.draw(st.dictionaries(places, st.integers(0, 255), min_size=1, max_size=4))
    path.write_bytes(bytes(damage.get(i, byte) for i, byte in enumerate(good)))
    try:
        loaded = nn.load_state(path)
    except FormatError:
        return
    assert sum(tensor.numel() for tensor in loaded.values()) <= 32


def test_a_missing_file_is_the_systems_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        nn.load_state(tmp_path / "absent.npz")
