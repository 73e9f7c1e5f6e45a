"""Which C compiler is taken, and what the user is told of those that do not work."""

import os
import shutil
import warnings

import pytest

from aotlite.backends.native.cache import artifact_cache
from aotlite.backends.native.compiler import (
    compilation,
    compiler_process,
    compilers,
    host_cpu,
    probe,
    toolchain,
)
from aotlite.backends.native.compiler.toolchain import compiler_problem, find_compiler
from aotlite.ir.errors import BackendError
from tests.backends.cpu.helpers.compilers import (
    DOUBLE,
    GCC,
    HALF,
    compiled,
    compiles,
    forget,
    in_child,
    mounted,
    warns_once,
)


def script(folder, name, text):
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


# ------------------------------------------------------------------------------------ what is taken
@compiles
def test_gcc_is_taken_where_nothing_is_named(cache):
    found = find_compiler()
    assert ((os.path.abspath(GCC),), "gcc") == (found.command, found.kind)
    assert found.version.startswith("gcc ")
    assert {"-march=native", "-std=gnu11", "-nostartfiles"} <= set(found.options)
    assert compiler_problem() is None


@compiles
def test_the_compiler_named_in_cc_comes_first_with_its_options(cache, monkeypatch):
    monkeypatch.setenv("CC", "gcc -DHALF='x / 2'")
    library = compiled("int half(int x) { return HALF; }", "half")
    assert (os.path.abspath(GCC), "-DHALF=x / 2") == find_compiler().command
    assert library.exists()


@compiles
def test_the_search_is_done_once_a_process(cache, monkeypatch):
    found = find_compiler()
    monkeypatch.setenv("CC", "/bin/false")
    assert found is find_compiler()


@compiles
def test_another_process_takes_what_the_disk_cache_knows_and_runs_nothing(cache, monkeypatch):
    found = find_compiler()
    forget()
    monkeypatch.setattr(compiler_process, "run", None)
    monkeypatch.setattr(compilation, "run", None)
    assert found == find_compiler()


@compiles
def test_a_compiler_that_was_upgraded_is_tried_out_again(cache, tmp_path, monkeypatch):
    log = tmp_path / "log"
    path = script(tmp_path, "cc", f'echo x >> {log}; exec {GCC} "$@"')
    monkeypatch.setenv("CC", str(path))
    identities = set()
    for seconds in (1, 1, 2):
        os.utime(path, (seconds, seconds))
        forget()
        identities.add(find_compiler().identity)
    assert (2, "x\nx\n") == (len(identities), log.read_text())


@compiles
def test_an_upgrade_behind_a_wrapper_is_seen(tmp_path):
    path = script(tmp_path, "cc", "")
    before = compilers.fingerprint(("/usr/bin/env", str(path)))
    path.write_text("longer than before")
    assert before != compilers.fingerprint(("/usr/bin/env", str(path)))


# ------------------------------------------------------------------------- what is not, and says so
def test_without_a_compiler_there_is_none_and_the_problem_says_what_to_install(no_compiler):
    assert find_compiler() is None
    problem = "no C compiler works here: no gcc or clang on the path, no ziglang installed; "
    assert problem + "install gcc or clang, or: pip install 'aotlite[cc]'" == compiler_problem()
    with pytest.raises(BackendError, match="^cpu: no C compiler works here: "):
        compiled(DOUBLE)


def test_an_empty_path_has_no_compiler(cache, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(compilers, "_zig", lambda: None)
    assert find_compiler() is None


@compiles
@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("exit 3", "ended with status 3"),
        (
            "echo a note; echo 'p.c:1: error: no such flag' >&2; exit 1",
            "status 1: p.c:1: error: no",
        ),
        ("kill -9 $$", "was ended by signal 9"),
        ("exit 0", "makes no library"),
        (f"{HALF}; exit 0", "left half a library although its status is 0"),
        ("echo no library > library.so", "left a file that is no library"),
    ],
)
def test_a_named_compiler_that_fails_is_told_once_and_the_next_is_taken(
    cache, tmp_path, monkeypatch, body, why
):
    monkeypatch.setenv("CC", str(script(tmp_path, "cc", body)))
    with warns_once(f"cc\\).*{why}.*; the next compiler is asked; unset or mend CC"):
        assert (os.path.abspath(GCC),) == find_compiler().command
        find_compiler()
        compiler_problem()


FULL = "ln -s /dev/full room; echo ld: final link failed; echo collect2: error: ld; exit 1"
"""As a compiler leaves a folder in which there is no room: what is written there is refused."""


@compiles
def test_a_compiler_that_fails_for_want_of_room_is_not_to_blame(cache, tmp_path, monkeypatch):
    monkeypatch.setenv("CC", str(script(tmp_path, "cc", FULL)))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    why = f"{tmp_path} has less than 1 MiB left, and the compiler ended with status 1: ld: final"
    with warns_once(f"cc\\): cannot be tried: there is no room .*{why}.*; the next .* asked$"):
        assert (os.path.abspath(GCC),) == find_compiler().command


@compiles
def test_where_there_is_no_room_no_compiler_is_to_be_installed(no_compiler, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    broken = compilers.Candidate("gcc", (str(script(tmp_path, "gcc", FULL)),))
    monkeypatch.setattr(toolchain, "candidates", lambda: iter([broken]))
    said = compiler_problem()
    advice = f"; make some in the folder for temporary files, {tmp_path}, or name another one in "
    assert said.endswith(f"{advice}TMPDIR") and "install" not in said
    assert "status 1: ld: final link failed)" in said


@compiles
@pytest.mark.parametrize("size", [8, 16, 24, 32])
def test_gcc_in_a_full_folder_says_so(cache, tmp_path, monkeypatch, size):
    """Really full: a file system of some KiB."""
    gcc = compilers.Candidate("gcc", (GCC,))
    monkeypatch.setattr(toolchain, "candidates", lambda: iter([gcc]))
    folder = tmp_path / "small"
    folder.mkdir()

    def compile_without_room():
        if not mounted(folder, [f"size={size}k"]):
            return
        monkeypatch.setattr("tempfile.tempdir", str(folder))
        monkeypatch.setenv("TMPDIR", str(folder))
        said = compiler_problem() or ""
        if not said:
            with pytest.raises(BackendError) as caught:
                compiled("int big[5000] = {1};")
            said = str(caught.value)
        assert "No space left on device" in said and "TMPDIR" in said and "install" not in said

    in_child(compile_without_room)


@compiles
def test_where_no_library_can_be_loaded_no_compiler_is_to_be_installed(cache, monkeypatch):
    def refused(path):
        raise OSError(f"{path}: failed to map segment from shared object")

    monkeypatch.setattr(toolchain, "candidates", lambda: iter([compilers.Candidate("gcc", (GCC,))]))
    monkeypatch.setattr(probe, "opened", refused)
    why = f"its library cannot be loaded from {cache}/kernels, mounted noexec? ("
    said = compiler_problem()
    assert f"gcc: cannot be tried: {why}" in said
    assert said.endswith("); set AOTLITE_CACHE to a folder from which programs may be run")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("/no/such/compiler -O2", "cannot be run: No such file or directory"),
        ("gcc 'half", "cannot be read as a command"),
    ],
)
def test_a_command_that_cannot_be_run_is_a_compiler_that_fails(no_compiler, monkeypatch, text, why):
    monkeypatch.setenv("CC", text)
    with warns_once(why):
        assert find_compiler() is None
    assert f"works here: $CC ({text}): {why}; " in compiler_problem()


def test_a_compiler_that_hangs_when_it_is_tried_out_is_given_up(no_compiler, tmp_path, monkeypatch):
    monkeypatch.setenv("CC", str(script(tmp_path, "cc", "sleep 60")))
    monkeypatch.setattr(probe, "PROBE_LIMIT", 0.2)
    with warns_once("took more than 0.2 s"):
        assert find_compiler() is None


def test_a_compiler_that_is_not_named_fails_silently(no_compiler, tmp_path, monkeypatch):
    broken = compilers.Candidate("gcc", (str(script(tmp_path, "gcc", "exit 1")),))
    monkeypatch.setattr(toolchain, "candidates", lambda: iter([broken]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert find_compiler() is None
    assert "works here: gcc: ended with status 1; install" in compiler_problem()


def test_a_system_that_is_not_served_says_so(no_compiler, monkeypatch):
    monkeypatch.setattr(toolchain.os, "name", "nt")
    why = "C is compiled on Linux and macOS, and not on nt"
    assert (None, (why,)) == toolchain._searched()


@compiles
def test_another_version_that_asks_for_other_flags_asks_the_compiler_again(cache, monkeypatch):
    before = find_compiler().options
    forget()
    asked = (*compilers.OPTIONAL, ("-fno-ident",))
    for module in (compilers, probe):
        monkeypatch.setattr(module, "OPTIONAL", asked)
    assert (*before, "-fno-ident") == find_compiler().options


# -------------------------------------------------------------------------------------------- flags
REFUSES = """\
case " $* " in *" -std=gnu11 "*|*" -pipe "*|*" -nostartfiles "*) echo no >&2; exit 1 ;; esac
exec {gcc} "$@"
"""


@compiles
def test_flags_that_a_compiler_refuses_are_dropped(cache, tmp_path, monkeypatch):
    monkeypatch.setenv("CC", str(script(tmp_path, "cc", REFUSES.format(gcc=GCC))))
    options = find_compiler().options
    assert {"-std=gnu11", "-pipe", "-nostartfiles"}.isdisjoint(options)
    assert ("-std=c11", "-march=native") == options[:2]
    assert "-fno-math-errno" in options
    assert compiled(DOUBLE).exists()


@compiles
@pytest.mark.parametrize("contract", [True, False])
def test_products_and_sums_are_contracted_where_that_is_wanted(cache, contract):
    flags = find_compiler().flags(contract, "")
    assert "-ffp-contract=off" in flags  # the text says which
    assert contract == ("-DCONTRACT" in flags)
    assert not any(flag.startswith(("-ffast", "-Ofast")) for flag in flags)


@compiles
def test_sanitizers_bring_debugging_and_the_start_files(cache):
    flags = find_compiler().flags(True, "undefined")
    assert "-fsanitize=undefined" in flags and "-nostartfiles" not in flags
    assert [flag for flag in flags if flag.startswith("-O")][-1] == "-O1"


@compiles
@pytest.mark.parametrize("given", ["-ffast-math", "-Ofast", "-ffinite-math-only"])
def test_fast_math_of_a_named_compiler_is_undone(cache, monkeypatch, given):
    """Its start file would flush the denormals of the whole process; NaN would not be NaN."""
    from aotlite.backends.native.libraries.library_loading import load_c

    monkeypatch.setenv("CC", f"gcc {given}")
    text = "int fast(void) { return __FINITE_MATH_ONLY__; }\n"
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert 0 == load_c(text, "fast").fast()
    assert (len(find_compiler().command) == 1) == bool(told)  # undone, or the next one is taken


# ---------------------------------------------------------------------------------- other compilers
def test_the_wheel_is_run_without_a_python_before_it(cache, tmp_path, monkeypatch):
    package = tmp_path / "ziglang"
    package.mkdir()
    (package / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    assert "ziglang" == compilers._zig()[2]
    (package / "zig").write_text("")
    assert (str(package / "zig"), "cc") == compilers._zig()


@pytest.mark.skipif(compilers._zig() is None, reason="needs ziglang")
@pytest.mark.long  # its first run takes seconds
def test_the_wheel_compiles(cache, monkeypatch):
    zig = compilers.Candidate("ziglang", compilers._zig())
    monkeypatch.setattr(toolchain, "candidates", lambda: iter([zig]))
    assert "zig" == find_compiler().kind
    assert compiled(DOUBLE).exists()


@pytest.mark.skipif(shutil.which("clang") is None, reason="needs clang")
def test_clang_compiles(cache, monkeypatch):
    monkeypatch.setenv("CC", "clang")
    assert "clang" == find_compiler().kind
    assert compiled(DOUBLE).exists()


# ------------------------------------------------------------------------------------ the processor
def test_the_processor_is_told_without_what_changes_from_second_to_second(tmp_path):
    told = ["processor: 0\n", "model name: A\n", "cpu MHz: 2.5\n", "flags: a b\n", "\n", "flags: c"]
    assert ["model name: A", "flags: a b"] == host_cpu._cpu_fields(told)
    host_cpu.identity.cache_clear()
    first = host_cpu.identity()
    host_cpu.identity.cache_clear()
    assert first == host_cpu.identity()


@compiles
def test_another_processor_another_library(cache, monkeypatch):
    """A home folder may be shared by many machines."""
    find_compiler()
    here = toolchain.key_of_c(DOUBLE)
    monkeypatch.setattr(host_cpu, "identity", lambda: "another")
    assert here != toolchain.key_of_c(DOUBLE)
    assert artifact_cache.found(here) is None
