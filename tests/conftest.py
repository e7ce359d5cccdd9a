"""What every test starts from."""

import os
import signal

# The workers of one run share the cores: threads of their own would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell that runs us in the background lets us ignore Ctrl-C, and every child inherits that: the tests that interrupt
# a run would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
