"""The tests start as a run does: without PyTorch's compiler, on one thread."""

from __future__ import annotations

import torch

from training.startup import defer_compiler

defer_compiler()
torch.set_num_threads(1)
