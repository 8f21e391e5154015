"""New default random generators for each generation of the machine.

Two forks of one checkpoint hold the same memory. The kernel's generator is
made new by the agent; what this process keeps of its own is made new here,
from the kernel and the seed that the host sent:

random           the module's own generator, unless the program seeded it
numpy.random     the legacy global generator, unless the program seeded it
ssl              OpenSSL's primary generator; all others follow it
uuid             clock sequence and last time stamp of uuid1
tempfile         the sequence of candidate names
multiprocessing  key and name sequence, while nobody uses them

Generators that the program made itself keep their state. `secrets`,
`os.urandom`, `uuid4` and `random.SystemRandom` ask the kernel each time.
"""

import ctypes
import functools
import hashlib
import os
import sys


class Generation:
    """Keeps track of what the program seeded, and renews the rest."""

    def __init__(self):
        self._seeded = set()
        self._watched = set()
        self._untouched = None

    def watch(self):
        """Wraps the seeding functions of the modules that are loaded."""
        random = sys.modules.get("random")
        if random is not None:
            self._watch("random", [random], ("seed", "setstate"))
        legacy = sys.modules.get("numpy.random")
        if legacy is not None:
            self._watch("numpy.random", [legacy, legacy.mtrand], ("seed", "set_state"))

    def prepare(self):
        """Makes the next renewals cheap, as long as no program has run: numpy's own way
        to seed goes through hundreds of pages, each a fault in a restored machine."""
        legacy = sys.modules.get("numpy.random")
        if legacy is not None:
            _seed(legacy, b"")  # it forgets what it was made from, too
            self._untouched = _state_of(legacy.mtrand._rand)

    def forget(self):
        """Takes everything for unseeded: the program starts now."""
        self._seeded.clear()
        self._untouched = None

    def renew(self, seed=b""):
        """Gives every default generator a new state."""
        random = sys.modules.get("random")
        if random is not None and "random" not in self._seeded:
            random._inst.seed(_fresh(seed, b"random", 64))
        legacy = sys.modules.get("numpy.random")
        if self._untouched is not None:
            _fill(self._untouched, random.Random(_fresh(seed, b"numpy", 64)))
        elif legacy is not None and "numpy.random" not in self._seeded:
            _seed(legacy, seed)
        ssl = sys.modules.get("ssl")
        if ssl is not None:
            ssl.RAND_add(_fresh(seed, b"ssl", 32), 32.0)
            if not ssl.RAND_status():
                raise RuntimeError("OpenSSL's generator is not seeded")
        _renew_uuid()
        tempfile = sys.modules.get("tempfile")
        if tempfile is not None:
            tempfile._name_sequence = None
        self.watch()

    def _watch(self, name, modules, functions):
        if name in self._watched:
            return
        self._watched.add(name)
        for function in functions:
            original = getattr(modules[0], function)
            wrapper = self._wrapper(name, original)
            for module in modules:
                setattr(module, function, wrapper)

    def _wrapper(self, name, original):
        seeded = self._seeded

        @functools.wraps(original)
        def wrapper(*args, **kwargs):
            result = original(*args, **kwargs)
            # Without a value, or with None, the generator is seeded from the
            # kernel, and nobody can count on what it gives.
            if any(value is not None for value in (*args, *kwargs.values())):
                seeded.add(name)
            else:
                seeded.discard(name)
            return result

        return wrapper


def _seed(legacy, seed):
    """Seeds numpy's legacy generator."""
    legacy.mtrand._rand.seed(memoryview(_fresh(seed, b"numpy", 64)).cast("I").tolist())


_KEY_WORDS = 624  # of a Mersenne Twister; behind them is how many were given out


def _state_of(generator):
    """Returns the state of numpy's legacy generator as an array, or None if it is not what
    it is known to be, or keeps a number for later. It is the generator's own memory, and
    must not be used after it."""
    name, key, position, has_gauss, _ = generator.get_state()
    bits = getattr(generator, "_bit_generator", None)
    if name != "MT19937" or has_gauss or len(key) != _KEY_WORDS or bits is None:
        return None
    state = (ctypes.c_uint32 * (_KEY_WORDS + 1)).from_address(bits.ctypes.state_address)
    return state if list(state) == [*key, position] else None


def _fill(state, source):
    """Gives a Mersenne Twister the state of another, which was seeded."""
    state[:] = source.getstate()[1]


def _fresh(seed, use, size):
    """Returns bytes that depend on the kernel's generator and the seed."""
    out = b""
    while len(out) < size:
        out += hashlib.blake2b(seed + os.urandom(64), key=use).digest()
    return out[:size]


def _renew_uuid():
    uuid = sys.modules.get("uuid")
    if uuid is None:
        return
    uuid._last_timestamp = None
    if uuid._generate_time_safe is None:
        return
    # libuuid keeps a clock sequence that cannot be reset. Without it uuid1
    # draws a sequence for each value; the node stays the machine's.
    if uuid._node is None:
        uuid._node = uuid.UUID(bytes=uuid._generate_time_safe()[0]).node
    uuid._generate_time_safe = None


def renew_multiprocessing():
    """Gives multiprocessing a new key and names.

    Preconditions: no process of it runs, since those know the old ones.
    """
    process = sys.modules.get("multiprocessing.process")
    if process is not None:
        process.ORIGINAL_DIR = os.getcwd()
        process.current_process().authkey = os.urandom(32)
    synchronize = sys.modules.get("multiprocessing.synchronize")
    if synchronize is not None:
        tempfile = sys.modules["tempfile"]
        synchronize.SemLock._rand = tempfile._RandomNameSequence()
