"""What every test starts from."""

import signal

# A shell that runs us in the background lets us ignore Ctrl-C, and every child inherits that: the tests that interrupt
# a run would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
