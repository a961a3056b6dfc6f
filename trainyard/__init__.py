"""The command line `trainyard`."""

import gc

from trainyard import client_imports

# Most that a command makes lives to its end, its modules before all: searched for garbage at Python's own
# pace, a start takes a fifth longer, and a rehearsal, whose fakes keep what they have made, a sixth.
gc.set_threshold(100_000)
client_imports.leave_out()
