"""Text in the layout of The Pile becomes token shards by examples/tokens.py, a tokenizer trained on it."""

import json
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest
import zstandard

from engine.paths import REPOSITORY
from tests.training.foreign.programs import PACKAGES, environment
from trainyard_train.data.text import TokenShards

FILES = sorted(Path(sysconfig.get_path("stdlib")).glob("[a-b]*.py"))
DECODE = """
import json, sys
import numpy as np
from tokenizers import Tokenizer
tokenizer = Tokenizer.from_file("out/tokenizer.json")
tokens = np.fromfile("out/shard-00000.bin", dtype=np.uint16)
parts = np.split(tokens, np.flatnonzero(tokens == tokenizer.token_to_id("<|end|>")) + 1)
print(json.dumps([tokenizer.decode(part[:-1]) for part in parts[:-1]]))
"""


@pytest.mark.skipif(not PACKAGES.is_dir(), reason="no tokenizers here: run make peers")
def test_a_tokenizer_is_trained_and_every_document_can_be_decoded(tmp_path: Path) -> None:
    texts = [file.read_text() for file in FILES]
    lines = [json.dumps({"text": text, "meta": {"pile_set_name": "Github"}}) + "\n" for text in texts]
    (tmp_path / "00.jsonl.zst").write_bytes(zstandard.compress("".join(lines).encode()))
    command = [sys.executable, str(REPOSITORY / "examples/tokens.py"), "out", "1000", "00.jsonl.zst"]
    subprocess.run(command, cwd=tmp_path, env=environment(tmp_path), check=True)
    shards = TokenShards(str(tmp_path / "out"), context=64)
    shards.check()
    assert shards.vocabulary == 1000
    tokens = np.fromfile(tmp_path / "out/shard-00000.bin", dtype=np.uint16)
    assert tokens.max() < 1000
    assert len(tokens) < 0.5 * len("".join(texts).encode()), "it has learned to merge bytes"
    decode = [sys.executable, "-c", DECODE]
    decoded = subprocess.run(decode, cwd=tmp_path, env=environment(tmp_path), check=True, capture_output=True)
    assert json.loads(decoded.stdout) == texts
