"""The benchmarks of GPUs, as far as they go without one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import OrderedDict, namedtuple
from pathlib import Path
from typing import Any

import attrs
import optree
import pytest

import aotlite as al
from aotlite.backends.cuda.driver import nvrtc
from benchmarks import (
    cuda_modules,
    gpu,
    gpu_clocks,
    gpu_libraries,
    optree_stand_in,
)
from benchmarks.gpu_programs import ROWS, TINY

needs_nvrtc = pytest.mark.skipif(
    not nvrtc.is_installed(), reason="needs NVRTC: pip install nvidia-cuda-nvrtc"
)


@pytest.mark.parametrize("name", ROWS)
def test_a_row_counts_what_it_reads_and_writes(name: str) -> None:
    """Against the tensors that it really takes and gives."""
    row = ROWS[name]
    args = [al.zeros(shape) for shape in row.shapes(TINY)]
    if row.labels:
        args[-1] = args[-1].to(al.int64)
    result = row.function(al, *args)
    read = sum([each.nbytes for each in args])
    if row.backward:
        assert read + result.nbytes + read == row.bytes(TINY, 4)
    else:
        assert read + result.nbytes == row.bytes(TINY, 4)


@needs_nvrtc
def test_modules_are_measured_without_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    code = cuda_modules.main(["--rows", "chain", "--dtypes", "bfloat16", "--size", "16"])
    printed = capsys.readouterr().out
    assert code == 0
    for text in ("| chain, bfloat16 ", "sm_80", "sm_90"):
        assert text in printed


@needs_nvrtc
@pytest.mark.thinned(6)
@pytest.mark.parametrize("name", ROWS)
def test_the_modules_of_each_row_compile_and_spill_nothing(name: str) -> None:
    found = list(cuda_modules.every([name], ["float32"], 16))
    assert ["sm_80", "sm_90"] == [each.architecture for each in found]
    assert [0, 0] == [each.spills for each in found]


@needs_nvrtc
def test_modules_that_spill_or_move_too_much_are_failures(monkeypatch: Any) -> None:
    ((label, program),) = cuda_modules.programs(ROWS["chain"], al.float32, TINY, cuda_modules.H100)
    good = cuda_modules.measured(label, program, cuda_modules.H100)
    for bad in ({"spills": 4}, {"moved": 1.06}):
        found = attrs.evolve(good, **bad)
        monkeypatch.setattr(cuda_modules, "every", lambda *_, found=found: [found])
        assert 1 == cuda_modules.main([])
    monkeypatch.setattr(cuda_modules, "every", lambda *_: [attrs.evolve(good, moved=1.05)])
    assert 0 == cuda_modules.main([])


Pair = namedtuple("Pair", "first second")
TREES: list[Any] = [
    1,
    None,
    [],
    [1, (2, {"b": 3, "a": [4]}), None],
    {"x": (), "y": {}},
    Pair([1], 2),
    OrderedDict([("z", 1), ("a", (2, 3))]),
]


@pytest.mark.parametrize("tree", TREES, ids=str)
@pytest.mark.parametrize("none_is_leaf", [True, False])
def test_what_stands_in_for_optree_does_as_optree(tree: Any, none_is_leaf: bool) -> None:
    mine = optree_stand_in.tree_flatten(tree, none_is_leaf=none_is_leaf)
    its = optree.tree_flatten(tree, none_is_leaf=none_is_leaf)
    assert its[0] == mine[0]
    assert its[1].num_leaves == mine[1].num_leaves and its[1].is_leaf() == mine[1].is_leaf()
    assert tree == optree_stand_in.tree_unflatten(mine[1], mine[0])
    assert optree.tree_leaves(tree) == optree_stand_in.tree_leaves(tree)
    paths = optree_stand_in.tree_paths(tree, none_is_leaf=none_is_leaf)
    assert optree.tree_paths(tree, none_is_leaf=none_is_leaf) == paths
    doubled = [each and [each] * 2 for each in mine[0]]
    made = optree_stand_in.tree_map(lambda x: x and [x] * 2, tree, none_is_leaf=none_is_leaf)
    assert optree.tree_unflatten(its[1], doubled) == made


def test_optree_stays_where_it_is_installed() -> None:
    assert not optree_stand_in.install()


def dry(folder: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """The whole script, tiny, on the emulated device."""
    code = gpu.main(["--dry-run", "--out", str(folder), *arguments])
    return code, json.loads((folder / "gpu-dry-run.json").read_text("utf-8"))


@pytest.mark.slow("runs the whole script in a process of its own")
def test_the_script_runs_from_end_to_end_without_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All sections, on few rows and one model: five seconds."""
    few = ("chain", "cross-entropy", "layer norm backward")
    monkeypatch.setattr(gpu, "ROWS", {name: ROWS[name] for name in few})
    monkeypatch.setattr(gpu_clocks, "ROUND", 1e-4)
    whole = gpu.models
    monkeypatch.setattr(gpu, "models", lambda dry: whole(dry)[:1])
    code, found = dry(tmp_path)
    assert code == 0, found
    assert set(gpu.SECTIONS) <= set(found)
    assert all(found["numerics"][name]["right"] for name in few)
    assert all(found["rows"][name]["seconds"]["ours"] > 0 for name in few)
    assert {"MLP, float32", "MLP, bfloat16"} == set(found["training"])
    assert [0, 0, 0] == [each["waits"] for each in found["waits"].values() if "waits" in each]
    assert 4 == len(found["overhead"]) and "not recorded" not in str(found["overhead"])
    printed = capsys.readouterr().out
    assert "| chain " in printed and "| MLP, bfloat16 " in printed


def test_a_section_that_fails_is_told_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(session: Any) -> None:
        raise ValueError("no such luck")

    monkeypatch.setitem(gpu.SECTIONS, "overhead", (fails, 0.1))
    code, found = dry(tmp_path, "--sections", "overhead,bandwidth")
    assert (1, "ValueError: no such luck") == (code, found["overhead"]["section"]["error"])
    assert found["bandwidth"]["bytes a second"] > 0


def test_wrong_numbers_are_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "ROWS", {"chain": ROWS["chain"]})
    monkeypatch.setattr(gpu, "TOLERANCE", 1e-12)
    code, found = dry(tmp_path, "--sections", "numerics")
    assert code == 1 and found["numerics"]["chain"]["right"] is False


def test_what_ours_cannot_do_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another library cannot is none."""
    monkeypatch.setattr(gpu, "ROWS", {"chain": ROWS["chain"]})
    whole = gpu.models
    monkeypatch.setattr(gpu, "models", lambda dry: whole(dry)[:1])

    def refused(*_: Any) -> Any:
        raise al.BackendError("no kernels")

    for way, section, name in (("row", "rows", "chain"), ("step", "training", "MLP, float32")):
        monkeypatch.setattr(gpu_libraries.Ours, way, refused)
        code, found = dry(tmp_path, "--sections", section)
        assert (1, "ours: BackendError: no kernels") == (code, found[section][name]["error"])
    assert {} == gpu._without_ours({"jax": "ImportError: none"})


@pytest.mark.slow("imports PyTorch and CuPy in a process of its own")
def test_the_script_runs_by_its_path_and_says_what_it_needs(tmp_path: Path) -> None:
    script = [sys.executable, str(Path(gpu.__file__)), "--dry-run", "--sections", "waits"]
    options: dict[str, Any] = {"capture_output": True, "text": True, "cwd": tmp_path}
    done = subprocess.run([*script, "--out", str(tmp_path)], check=False, **options)
    assert (0, "") == (done.returncode, done.stderr)
    hidden = "import sys; sys.modules['rich'] = None; import benchmarks.gpu"
    options |= {"cwd": Path(gpu.__file__).parents[1]}
    done = subprocess.run([sys.executable, "-c", hidden], check=False, **options)
    assert "benchmarks.gpu needs rich: pip install rich" in done.stderr


def test_without_time_nothing_is_begun(tmp_path: Path) -> None:
    _, found = dry(tmp_path, "--seconds", "0", "--sections", "rows,training")
    left_out = {"left out": "out of time"}
    assert found["rows"] == {"section": left_out} and found["training"] == {"section": left_out}


def test_without_a_device_the_script_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if al.cuda.is_available():
        pytest.skip("there is a device")
    assert 2 == gpu.main(["--out", str(tmp_path)])
    assert "there is no CUDA device" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        gpu.main(["--sections", "nothing"])
