"""Fine-tunes a causal language model with Hugging Face's Trainer and one callback.

Without a network it trains a small GPT-2 from scratch; with one: `python train.py Qwen/Qwen3-0.6B`.
"""

import os
import sys
from pathlib import Path

import torch
from torch.utils.data import Dataset
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from trainyard_train.integrations.transformers import TrainyardCallback

LENGTH = 64


class Windows(Dataset):
    """PyTorch's own source, which every image has, as windows of bytes: replace it with your tokens."""

    def __init__(self) -> None:
        files = sorted(Path(torch.__file__).parent.glob("nn/modules/*.py"))
        self.text = b"".join(each.read_bytes() for each in files)[: 256 * LENGTH]

    def __len__(self) -> int:
        return len(self.text) // LENGTH

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = torch.tensor(list(self.text[index * LENGTH : (index + 1) * LENGTH]))
        return {"input_ids": tokens, "labels": tokens}


def main() -> None:
    small = GPT2Config(vocab_size=256, n_positions=LENGTH, n_embd=64, n_layer=2, n_head=4)
    named = sys.argv[1:]
    model = AutoModelForCausalLM.from_pretrained(*named) if named else GPT2LMHeadModel(small)
    folder = os.environ.get("TRAINYARD_RUN_DIR", "out")
    arguments = TrainingArguments(
        folder,
        num_train_epochs=2,
        per_device_train_batch_size=8,
        save_strategy="no",
        report_to=[],
        use_cpu=not torch.cuda.is_available(),
    )
    trainer = Trainer(model, arguments, train_dataset=Windows())
    trainer.add_callback(TrainyardCallback(trainer, folder, every_steps=10))  # the only added line
    trainer.train()


if __name__ == "__main__":
    main()
