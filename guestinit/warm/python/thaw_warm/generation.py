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

import _random
import ctypes
import functools
import os
import sys


class Generation:
    """Keeps track of what the program seeded, and renews the rest."""

    def __init__(self):
        self._seeded = set()
        self._watched = set()
        self._unused = None

    def watch(self):
        """Wraps the seeding functions of the modules that are loaded."""
        random = sys.modules.get("random")
        if random is not None:
            self._watch("random", [random], ("seed", "setstate"))
        legacy = sys.modules.get("numpy.random")
        if legacy is not None:
            # What is set as its bit generator is one that the program made itself.
            self._watch("numpy.random", [legacy, legacy.mtrand], ("seed", "set_state", "set_bit_generator"))

    def prepare(self):
        """Makes the next renewals cheap, as long as no program has drawn: numpy's own way
        to seed goes through hundreds of pages, each a fault in a restored machine. The
        first renewal of all is here, in the template: for it OpenSSL makes its generators,
        which takes a thousand pages."""
        legacy = sys.modules.get("numpy.random")
        if legacy is not None:
            _seed(legacy, b"")  # it forgets what it was made from, too
            self._unused = _Unused.of(legacy.mtrand._rand)
        self.renew(os.urandom(32))

    def forget(self):
        """Takes everything for unseeded: the program starts now."""
        self._seeded.clear()

    def renew(self, seed=b""):
        """Gives every default generator a new state."""
        random = sys.modules.get("random")
        if random is not None and "random" not in self._seeded:
            # A number, not bytes: those would be hashed first.
            number = int.from_bytes(seed + os.urandom(64))
            if type(random._inst) is random.Random:  # then without the library's Python, whose code is elsewhere
                _random.Random.seed(random._inst, number)
                random._inst.gauss_next = None
            else:
                random._inst.seed(number)
        legacy = sys.modules.get("numpy.random")
        if legacy is not None and "numpy.random" not in self._seeded:
            if self._unused is None or not self._unused.renew(legacy.mtrand):
                _seed(legacy, seed)
        ssl = sys.modules.get("ssl")
        if ssl is not None:
            ssl.RAND_add(seed + os.urandom(32), 32.0)
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
            original = getattr(modules[0], function, None)
            if original is None:
                continue  # numpy has set_bit_generator since 1.24
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
    words = seed + os.urandom(64)
    legacy.mtrand._rand.seed(memoryview(words).cast("I").tolist())


_KEY_WORDS = 624  # of a Mersenne Twister; behind them is how many were given out


class _Unused:
    """The state of numpy's legacy generator, in its own memory, as long as nobody has drawn
    from it since it was last made new."""

    def __init__(self, generator, bits, state):
        self._generator, self._bits = generator, bits  # and with it the memory
        self._state = memoryview(state).cast("B").cast("I")
        self._last = self._mark()

    def _mark(self):
        """Returns what is another after each draw, and each seed: how many numbers of the
        key were given out, and, for whoever draws as many as there are, some of the key."""
        return bytes(self._state[_KEY_WORDS - 8 :])

    @classmethod
    def of(cls, generator):
        """Returns that of a generator, or None if its state is not what it is known to be,
        or it keeps a number for later."""
        name, key, position, has_gauss, _ = generator.get_state()
        bits = getattr(generator, "_bit_generator", None)
        if name != "MT19937" or has_gauss or len(key) != _KEY_WORDS or bits is None:
            return None
        state = (ctypes.c_uint32 * (_KEY_WORDS + 1)).from_address(bits.ctypes.state_address)
        return cls(generator, bits, state) if list(state) == [*key, position] else None

    def renew(self, mtrand):
        """Fills the state from the kernel's generator, or returns False: it was used, or
        another generator has its place."""
        if mtrand._rand is not self._generator or self._generator._bit_generator is not self._bits:
            return False
        if not self._bits.lock.acquire(False):
            return False  # somebody draws now
        try:
            if self._mark() != self._last:
                return False
            self._state[:_KEY_WORDS] = memoryview(os.urandom(4 * _KEY_WORDS)).cast("I")
            self._state[_KEY_WORDS] = _KEY_WORDS  # all are given out: the next draw turns the state over
            self._last = self._mark()
            return True
        finally:
            self._bits.lock.release()


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
