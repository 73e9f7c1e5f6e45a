"""What is packed is what is here, and the three packages import from every place they can be in."""

import ast
import configparser
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = {"aotlite": "aotlite", "ir": "aotlite/ir", "backends": "aotlite/backends"}
PACKED_SUFFIXES = {".py", ".typed", ".npz", ".c", ".cpp", ".h", ".json", ".txt"}
SDIST_FOLDERS = (*FOLDERS, "tests", "specs", "tools", "docs", "examples", "benchmarks", ".ci")
SDIST_FILES = (
    "CHANGELOG.md",
    "LICENSE",
    "MANIFEST.in",
    "README.md",
    "pyproject.toml",
    "ruff.toml",
    "setup.cfg",
)
# Neither the project's nor packed: caches, environments, and what an earlier build left.
CACHES = (".*cache", ".hypothesis", "__pycache__", "typecheck")
IGNORED = shutil.ignore_patterns(".git", ".venv", "build", "dist", "*.egg-info", *CACHES)
EXTRAS = {
    *("cc", "cuda12", "cuda13", "onnx", "stablehlo", "torch", "conformance", "verify"),
    *("test", "mutation", "dev"),
}
MODULES = {"cosmic-ray": "cosmic_ray", "pytest-xdist": "xdist", "z3-solver": "z3"} | {
    f"cupy-cuda{major}x": "cupy" for major in (12, 13)
}
"""What a distribution is imported as, where that is not its name with underscores."""
TOOLS = {
    "ziglang": "backends/native/compiler/compilers.py",
    "nvidia-cuda-nvrtc": "backends/cuda/driver/nvrtc.py",
    "nvidia-cuda-nvrtc-cu12": "aotlite/cli/doctor/cuda.py",
    "build": "tests/test_packaging.py",
    "setuptools": "pyproject.toml",
    "mypy": "tools/typecheck.py",
    "ruff": "tools/lint.py",
}
"""Distributions that nothing imports, and the file that runs them or looks for them by name."""
LOADERS = {"__import__", "import_module", "required", "hasplugin"}
"""Functions that import the module of a name."""
LISTED = ("aotlite", "ir", "backends", "tests", "tools")


def declared_packages() -> set[str]:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return set(parser["options"]["packages"].split())


def distributions() -> dict[str, list[str]]:
    """What each extra installs."""
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return {
        extra: [re.split("[<>=;]", line)[0].strip() for line in lines.split("\n") if line]
        for extra, lines in parser["options.extras_require"].items()
    }


def not_imported(wanted: set[str]) -> set[str]:
    """The modules that no code imports, by a statement or by a name that it writes out.

    Only files that have the name of one still wanted are parsed: to parse all takes seconds.
    """
    paths = [path for folder in LISTED for path in files_below(folder) if path.suffix == ".py"]
    for path in paths:
        text = (ROOT / path).read_text(encoding="utf-8")
        if any(name in text for name in wanted):
            wanted = wanted - imported_by(ast.parse(text))
    return wanted


def imported_by(tree: ast.Module) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.Import(names):
                found |= {alias.name.partition(".")[0] for alias in names}
            case ast.ImportFrom(str(module), level=0):
                found.add(module.partition(".")[0])
            case ast.Call(
                ast.Name(loader) | ast.Attribute(attr=loader), [ast.Constant(str(name)), *_]
            ) if loader in LOADERS:
                found.add(name.partition(".")[0])
    return found


def files_below(folder: str) -> set[Path]:
    """The files of a top-level folder, relative to the root, without caches."""
    return {
        path.relative_to(ROOT)
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
    }


def installed_place(path: Path) -> str:
    """Where a file of the three packages lies once installed: ir/op/__init__.py ->
    aotlite/ir/op/__init__.py."""
    return str(PurePosixPath(FOLDERS[path.parts[0]], *path.parts[1:]))


def expected_in_wheel() -> set[str]:
    files = set().union(*map(files_below, FOLDERS))
    packed = {installed_place(path) for path in files if path.suffix in PACKED_SUFFIXES}
    return packed | {"aotlite/data/README.md"}


def build(kind: str, folder: Path) -> Path:
    """The archive of this kind (wheel, sdist), built without network from a copy of the tree."""
    source, target = folder / "source", folder / "dist"
    shutil.copytree(ROOT, source, ignore=IGNORED)
    command = [sys.executable, "-m", "build", f"--outdir={target}", "--no-isolation", f"--{kind}"]
    run = subprocess.run(command, cwd=source, capture_output=True, text=True)
    assert 0 == run.returncode, run.stdout + run.stderr
    (archive,) = target.iterdir()
    return archive


def test_packages_listed_are_the_folders_that_hold_python_files():
    """A package missing from the list vanishes from the wheel without a word."""
    files = set().union(*map(files_below, FOLDERS))
    folders = {Path(installed_place(path)).parent for path in files if path.suffix == ".py"}
    assert declared_packages() == {".".join(folder.parts) for folder in folders}


def test_what_an_extra_installs_is_imported_or_run_by_some_code():
    """An extra that nothing needs promises what does not work."""
    modules, tools = {}, set()
    for extra, names in distributions().items():
        for name in names:
            if name in TOOLS:
                assert name in (ROOT / TOOLS[name]).read_text(), name
                tools.add(name)
            else:
                modules[MODULES.get(name, name.replace("-", "_"))] = f"{extra}: {name}"
    assert [] == [modules[name] for name in not_imported(set(modules))]
    assert set(TOOLS) == tools
    assert EXTRAS == set(distributions())


def test_packages_listed_have_an_init_file():
    places = {installed_place(path) for folder in FOLDERS for path in files_below(folder)}
    inits = {f"{package.replace('.', '/')}/__init__.py" for package in declared_packages()}
    assert set() == inits - places


def test_wheel_is_pure_and_holds_every_file_of_the_three_packages(tmp_path):
    wheel = build("wheel", tmp_path)
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (info,) = {name.split("/")[0] for name in names if ".dist-info/" in name}
        metadata = Parser().parsestr(archive.read(f"{info}/METADATA").decode())
        entry_points = archive.read(f"{info}/entry_points.txt").decode()
    assert expected_in_wheel() == {name for name in names if not name.startswith(info)}
    assert f"{info}/licenses/LICENSE" in names
    assert "aotlite = aotlite.cli:main" in entry_points
    check_metadata(metadata)


def check_metadata(metadata: Message) -> None:
    import aotlite

    assert (aotlite.__version__, ">=3.11") == (metadata["Version"], metadata["Requires-Python"])
    assert "BSD-3-Clause" == metadata["License-Expression"]
    assert EXTRAS == set(metadata.get_all("Provides-Extra", []))
    core = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    names = {line.split(">=")[0] for line in core}
    needed = {"attrs", "filelock", "ml_dtypes", "networkx", "numpy", "opt_einsum", "optree"}
    needed |= {"platformdirs", "rich", "sympy"}
    assert needed == names


def test_sdist_holds_what_building_and_testing_need(tmp_path):
    with tarfile.open(build("sdist", tmp_path)) as archive:
        names = {PurePosixPath(*PurePosixPath(name).parts[1:]) for name in archive.getnames()}
    wanted = {Path(name) for name in SDIST_FILES}.union(*map(files_below, SDIST_FOLDERS))
    assert set() == {path.as_posix() for path in wanted} - {str(name) for name in names}


@pytest.mark.parametrize("place", ["at the root", "elsewhere"])
def test_bare_checkout_imports_all_three_packages(tmp_path, place):
    """Each module once: the folder's own name must not have been loaded beside `aotlite.ir`."""
    code = (
        "import sys, aotlite.ir, aotlite.backends;"
        "print(aotlite.__file__, aotlite.ir.__file__, aotlite.backends.__file__, sep='\\n');"
        "assert not {'ir', 'backends'} & set(sys.modules)"
    )
    if place == "at the root":
        printed = run_python(code, cwd=ROOT, path=None)
    else:
        printed = run_python(code, cwd=tmp_path, path=ROOT)
    expected = [ROOT / folder / "__init__.py" for folder in FOLDERS]
    assert expected == [Path(line) for line in printed.splitlines()]


def test_bare_checkout_lines_are_inert_once_installed(tmp_path):
    """The path of an installed package stays one folder: its neighbors are not its submodules."""
    for folder, place in FOLDERS.items():
        shutil.copytree(ROOT / folder, tmp_path / place, ignore=IGNORED, dirs_exist_ok=True)
    printed = run_python(
        "import aotlite, aotlite.ir; print(aotlite.__path__)", cwd=tmp_path, path=tmp_path
    )
    assert [str(tmp_path / "aotlite")] == ast.literal_eval(printed)


def run_python(code: str, *, cwd: Path, path: Path | None) -> str:
    """What a fresh interpreter prints; `path` alone, or nothing, is its PYTHONPATH."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    assert 0 == run.returncode, run.stderr
    return run.stdout
