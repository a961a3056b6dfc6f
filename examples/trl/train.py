"""Fine-tunes a language model on conversations with TRL's SFTTrainer and one callback."""

import os
import sys

import torch
from datasets import load_dataset
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
)
from trl import SFTConfig, SFTTrainer

from trainyard_train.integrations.transformers import TrainyardCallback

DATA = load_dataset("json", data_files="questions.jsonl", split="train")  # a text in each line


def small():
    """Return a model and its tokenizer, made here, where no network brings others."""
    words = Tokenizer(models.WordLevel(unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.train_from_iterator(DATA["text"], trainers.WordLevelTrainer(special_tokens=["<unk>", "<end>"]))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<end>", pad_token="<end>")
    config = GPT2Config(vocab_size=len(tokenizer), n_positions=64, n_embd=64, n_layer=2, n_head=4)
    return GPT2LMHeadModel(config), tokenizer


def main() -> None:
    if sys.argv[1:]:  # such as Qwen/Qwen3-0.6B
        model = AutoModelForCausalLM.from_pretrained(sys.argv[1])
        tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
    else:
        model, tokenizer = small()
    folder = os.environ.get("TRAINYARD_RUN_DIR", "out")
    gpu = torch.cuda.is_available()
    arguments = SFTConfig(
        folder,
        num_train_epochs=2,
        per_device_train_batch_size=8,
        save_strategy="no",
        report_to=[],
        use_cpu=not gpu,
        bf16=gpu,
    )
    trainer = SFTTrainer(model, arguments, train_dataset=DATA, processing_class=tokenizer)
    trainer.add_callback(TrainyardCallback(trainer, folder, every_steps=10))  # the only added line
    trainer.train()


if __name__ == "__main__":
    main()
