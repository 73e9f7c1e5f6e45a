"""Hides from aotlite what only POSIX has, as on Windows: modules, and names of `os` and `signal`.

`install()` does it in this process. `environment(folder)` gives variables that do it in a process
that is started and in all that it starts: `folder` gets a `sitecustomize` module, which Python
imports at its start.
"""

import builtins
import os
import signal
import sys
import types
from pathlib import Path

MODULES = ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog", "posix", "crypt")
NAMES = {
    "os": (
        "fork", "forkpty", "register_at_fork", "wait", "waitid", "wait3", "wait4", "killpg",
        "getuid", "geteuid", "getgid", "getegid", "getpgid", "getpgrp", "setsid", "setpgid",
        "getpriority", "nice", "statvfs", "fstatvfs", "sched_getaffinity", "sched_setaffinity",
        "sysconf", "uname", "chown", "fchown", "lchown", "mkfifo", "pread", "pwrite", "pipe2",
        "posix_spawn", "getloadavg", "O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_DIRECTORY",
        "WIFSIGNALED", "WTERMSIG", "ST_NOEXEC",
    ),
    "signal": (
        "SIGKILL", "SIGUSR1", "SIGUSR2", "SIGHUP", "SIGALRM", "SIGCHLD", "SIGSTOP", "SIGPIPE",
        "SIGBUS", "SIGQUIT", "alarm", "setitimer", "pthread_sigmask", "sigwait", "siginterrupt",
    ),
    "faulthandler": ("register", "unregister"),
}  # fmt: skip
SITE = (
    "import sys\nsys.path.append({root!r})\n"
    "from tests.helpers.hidden_posix import install\ninstall()\n"
)


class Hiding(types.ModuleType):
    """Stands for a module, but for some of its names."""

    def __init__(self, module, names):
        super().__init__(module.__name__)
        everything = {name: value for name, value in vars(module).items() if name not in names}
        self.__dict__.update(everything)


def install():
    """From now on modules of aotlite see what Windows has."""
    import faulthandler

    real = {"os": os, "signal": signal, "faulthandler": faulthandler}
    stands = {name: Hiding(real[name], hidden) for name, hidden in NAMES.items()}
    stands["os"].name = "nt"
    stands["os"].supports_dir_fd = frozenset()  # no descriptors of folders
    original = builtins.__import__

    def importing(name, names=None, locals=None, fromlist=(), level=0):
        importer = (names or {}).get("__name__") or ""
        if importer.split(".")[0] == "aotlite":
            if not level and name.split(".")[0] in MODULES:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
            if not level and name in stands:
                return stands[name]
        return original(name, names, locals, fromlist, level)

    builtins.__import__ = importing


def environment(folder):
    """Variables with which a process, and all that it starts, sees what Windows has."""
    root = str(Path(__file__).parents[2])
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(SITE.format(root=root))
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
