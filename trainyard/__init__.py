"""The command line `trainyard`."""

import gc
import os

# Most objects of a command, above all its modules, live until it ends. With Python's default threshold for
# garbage collection a start takes a fifth longer, and a rehearsal, whose fakes retain resources, a sixth.
gc.set_threshold(100_000)
# Pydantic would read the metadata of every installed package to find plugins, and our models need none.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
