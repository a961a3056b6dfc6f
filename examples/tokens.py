"""Trains a tokenizer on text, and writes the text as token shards, which `training/configs/gpt.yaml` reads.

`python tokens.py OUT VOCABULARY FILE …`: files of `.jsonl` or `.jsonl.zst` with a document in `text` of each
line, as The Pile has them. It needs datasets, tokenizers, zstandard and trainyard-train.
"""

import sys
from pathlib import Path

import numpy as np
from datasets import load_dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from trainyard_train.data.text import write_tokens

END = "<|end|>"
"""Token that ends a document."""


def main(out: Path, vocabulary: int, files: list[str]) -> None:
    """Train a byte-level BPE tokenizer, and write its tokens; the index has the size of its vocabulary."""
    texts = load_dataset("json", data_files=files, split="train", streaming=True).select_columns(["text"])
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    bytes_first = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=[END], initial_alphabet=bytes_first, show_progress=False
    )
    tokenizer.train_from_iterator((each["text"] for each in texts), trainer)
    end = tokenizer.token_to_id(END)
    encoded = (np.array([*tokenizer.encode(each["text"]).ids, end]) for each in texts)
    write_tokens(out, encoded, tokenizer.get_vocab_size())
    tokenizer.save(str(out / "tokenizer.json"))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
