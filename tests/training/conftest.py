"""Tests start as a run does: with PyTorch's compiler deferred and one thread; with trackers, if installed."""

import sys

import torch

from engine.paths import REPOSITORY
from trainyard_train.elasticity.startup import defer_compiler

defer_compiler()
torch.set_num_threads(1)
sys.path.append(str(REPOSITORY / ".trainyard" / "peers"))  # made by `make peers`
