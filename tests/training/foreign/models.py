"""A small model and texts, generated locally, for programs that would download theirs from a hub."""

import json
import random
import sys
from pathlib import Path

_WORDS = 50


def make_model(folder: Path) -> None:
    """Write a Llama of 6,000 weights and its tokenizer of 50 words to a folder."""
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    vocabulary = {word: number for number, word in enumerate(["<unk>", "<pad>", "<eos>", *_words()])}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Whitespace()
    names = {"unk_token": "<unk>", "pad_token": "<pad>", "eos_token": "<eos>"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
    torch.manual_seed(1)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        **sizes,
        attention_dropout=0.1,
        pad_token_id=1,
        eos_token_id=2,
        bos_token_id=2,
    )
    LlamaForCausalLM(config).save_pretrained(folder)


def make_texts(folder: Path, number: int) -> None:
    """Write `number` lines of words to a folder, as `datasets` reads them."""
    folder.mkdir()
    chance = random.Random(4)
    lines = [" ".join(chance.choices(_words(), k=12)) for _ in range(number)]
    (folder / "train.jsonl").write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))


def _words() -> list[str]:
    return [f"word{number}" for number in range(_WORDS - 3)]


if __name__ == "__main__":
    make_model(Path(sys.argv[1]))
