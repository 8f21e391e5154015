"""Decides what a command line asks for and whether this interpreter can do it.

What cannot be done here exactly as a fresh interpreter would do it is done by
one: the process executes `python3` anew, with the same arguments, environment
and descriptors. That is slower and never wrong.
"""

import importlib.machinery
import os
import shutil
import signal
import sys

# Variables that act while an interpreter starts or a library is loaded. If one
# differs from what this interpreter was started with, it is the wrong one.
_ACT_AT_START = ("PYTHON", "LC_", "LD_", "GLIBC_", "MALLOC_", "OPENSSL_", "OPENBLAS_", "GOTO_", "OMP_", "MKL_", "NPY_", "NUMPY_", "MPL")
_ACT_AT_START_NAMES = ("LANG", "LANGUAGE")

# Files in the working directory that a preloaded library would have read.
_READ_AT_START = ("matplotlibrc",)


class Command:
    """A command line that can be run here.

    kind    "file", "module" or "string"
    target  path of the script, name of the module, or source text
    argv    sys.argv
    """

    def __init__(self, kind, target, argv, executable, original):
        self.kind, self.target, self.argv = kind, target, argv
        self.executable, self.original = executable, original


class Cold(Exception):
    """A fresh interpreter is needed; the message says why."""


class Startup:
    """What was there before this interpreter warmed up."""

    def __init__(self, modules):
        self.modules = frozenset(modules)
        self.environ = {k: v for k, v in os.environ.items() if _acts_at_start(k)}

    def parse(self, argv, environ):
        """Returns the Command of argv, or raises Cold.

        Preconditions: the working directory is the job's.
        """
        executable = self._executable(argv[0], environ)
        if {k: v for k, v in environ.items() if _acts_at_start(k)} != self.environ:
            raise Cold("environment acts at start")
        home = environ.get("HOME", "")
        version = "python%d.%d" % sys.version_info[:2]
        if home and os.path.isdir(os.path.join(home, ".local", "lib", version, "site-packages")):
            raise Cold("user site directory")
        if len(argv) < 2:
            raise Cold("no script")
        first = argv[1]
        if first in ("-c", "-m"):
            if len(argv) < 3:
                raise Cold("no script")
            kind = "string" if first == "-c" else "module"
            command = Command(kind, argv[2], [first, *argv[3:]], executable, argv)
            directory = os.getcwd()
        elif first.startswith("-"):
            raise Cold("option " + first)
        else:
            command = Command("file", first, argv[1:], executable, argv)
            directory = os.path.dirname(os.path.realpath(first))
        self._check_directory(directory)
        return command

    def _executable(self, name, environ):
        found = name if "/" in name else shutil.which(name, path=environ.get("PATH", os.defpath))
        if found is None or os.path.realpath(found) != os.path.realpath(sys.executable):
            raise Cold("another interpreter")
        return os.path.join(os.getcwd(), found)

    def _check_directory(self, directory):
        """Refuses a directory whose modules would come before warm ones."""
        # The few names of the directory are looked up: to go through all modules would
        # read the name of each, and most lie on pages of their own.
        shadowed = {name for name in _modules_of(directory) if name in sys.modules and name not in self.modules}
        if shadowed:
            raise Cold("local module " + min(shadowed))
        for name in _READ_AT_START:
            if os.path.lexists(name):
                raise Cold("file " + name)


def _modules_of(directory):
    """Returns the names of the modules and packages in a directory."""
    suffixes = tuple(importlib.machinery.all_suffixes())
    names = set()
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                name = entry.name
                if name.endswith(suffixes):
                    names.add(name.partition(".")[0])
                elif "." not in name and any(os.path.exists(os.path.join(entry.path, "__init__" + s)) for s in suffixes):
                    names.add(name)
    except OSError:
        pass
    return names


def _acts_at_start(name):
    return name.startswith(_ACT_AT_START) or name in _ACT_AT_START_NAMES


def execute(argv, environ):
    """Becomes a fresh interpreter. Returns only if there is no such program."""
    path = argv[0] if "/" in argv[0] else shutil.which(argv[0], path=environ.get("PATH", os.defpath))
    for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGURG):
        signal.signal(number, signal.SIG_DFL)
    if path is not None:
        try:
            os.execve(path, argv, environ)
        except OSError:
            pass
    os._exit(127)
