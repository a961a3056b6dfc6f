"""What every test starts from."""

from __future__ import annotations

import os

from local.paths import Paths

# helm, kubectl and pulumi as `make test` has prepared them, in this clone and before any other.
os.environ["PATH"] = os.pathsep.join((str(Paths.from_environment().bin), os.environ["PATH"]))
