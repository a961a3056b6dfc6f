"""The command line `trainyard`."""

import gc

from trainyard import client_imports

# Most objects of a command, above all its modules, live until it ends. With Python's default threshold for
# garbage collection a start takes a fifth longer, and a rehearsal, whose fakes retain resources, a sixth.
gc.set_threshold(100_000)
client_imports.install()
