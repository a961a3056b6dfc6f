"""The command line `trainyard`."""

import gc

from trainyard import client_imports

# Most objects of a command, above all its modules, last until it ends. With garbage collection at Python's
# default rate a start takes a fifth longer, and a rehearsal, whose fakes hold what they have made, a sixth.
gc.set_threshold(100_000)
client_imports.install()
