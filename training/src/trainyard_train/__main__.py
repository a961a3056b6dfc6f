"""`python -m training checkpoint ls|verify|diff|export`: look at what a run has saved."""

from __future__ import annotations

import sys

from trainyard_train.checkpointing.inspect import main

if __name__ == "__main__":
    sys.exit(main())
