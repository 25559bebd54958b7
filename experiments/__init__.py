"""The binaries: the only code that reads flags."""

import signal
import sys

# Until a binary has imported what it needs and minds Ctrl-C itself, that ends it on the spot:
# Python's own handler raises an error wherever it is, which is lost in what JAX calls back.
if sys.argv[0] == "-m" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
