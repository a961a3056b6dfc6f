"""Checkpoints exchanged with `transformers`: it reads our sharded export, and its checkpoint is imported."""

from pathlib import Path

import pytest

from tests.processes import TIMEOUT_SECONDS
from tests.training.foreign.forks import Forks

ROUND_TRIP = """
import sys
from pathlib import Path
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from trainyard_train import Run, export_checkpoint, import_checkpoint

here = Path(sys.argv[1])
sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
config = LlamaConfig(vocab_size=50, tie_word_embeddings=True, **sizes)

def same(one, other):
    one, other = one.state_dict(), other.state_dict()
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)

model = LlamaForCausalLM(config)
run = Run(here / "run")
run.track(model=model)
with run:
    run.step()
export_checkpoint(here / "run", "hf", here / "out", shard_bytes=4000)
config.save_pretrained(here / "out")
assert len(list((here / "out").glob("model-*-of-*.safetensors"))) > 1
loaded, report = LlamaForCausalLM.from_pretrained(here / "out", output_loading_info=True)
assert not any(report.values()), report
assert same(loaded, model)

other = LlamaForCausalLM(config)
other.save_pretrained(here / "theirs", max_shard_size="4KB")
import_checkpoint(here / "theirs", here / "new")
assert not same(model, other)
run = Run(here / "new")
run.track(model=model, optimizer=torch.optim.AdamW(model.parameters()))
with run:
    assert same(model, other)
"""


@pytest.mark.ranks
def test_shards_are_exported_to_transformers_and_imported_from_it(tmp_path: Path, forks: Forks) -> None:
    program, log = tmp_path / "program.py", tmp_path / "log"
    program.write_text(ROUND_TRIP)
    assert forks.start(program, [str(tmp_path)], log).wait(TIMEOUT_SECONDS) == 0, log.read_text()
