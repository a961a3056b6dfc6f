"""A decoder-only transformer (GPT-2's architecture), as a sequence of layers."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional

from trainyard_train.models.config import ModelConfig


def gpt_layers(config: ModelConfig, vocabulary: int) -> Iterator[tuple[str, nn.Module]]:
    """Token ids of shape (n, t), t up to `config.context`, → scores of shape (n, t, vocabulary).

    The blocks' weights are drawn first, as they always were: a seed keeps its meaning.
    """
    for number in range(config.layers):
        yield str(number + 1), TransformerBlock(config)
    yield "0", Embedding(config, vocabulary)
    yield str(config.layers + 1), Head(config, vocabulary)


class Embedding(nn.Module):
    """Embeddings of tokens and of their positions, added."""

    def __init__(self, config: ModelConfig, vocabulary: int) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, config.hidden)
        self.position = nn.Embedding(config.context, config.hidden)
        self.dropout = nn.Dropout(config.dropout)
        for table in (self.token, self.position):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        embedded: torch.Tensor = self.dropout(self.token(tokens) + self.position(positions))
        return embedded


class TransformerBlock(nn.Module):
    """Attention to what came before, then a feed-forward part, each added to what it was given."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width = config.hidden
        self.head_width = width // config.heads
        self.before_attention, self.before_feed = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out, self.up, self.down = (
            nn.Linear(width, width),
            nn.Linear(width, 4 * width),
            nn.Linear(4 * width, width),
        )
        self.dropout = nn.Dropout(config.dropout)
        for layer in (self.query, self.key, self.value, self.up):
            nn.init.normal_(layer.weight, std=0.02)
        for layer in (self.out, self.down):  # so that the sum over all blocks keeps its size
            nn.init.normal_(layer.weight, std=0.02 / (2 * config.layers) ** 0.5)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        values = values + self.dropout(self._attend(self.before_attention(values)))
        feed: torch.Tensor = self.down(functional.gelu(self.up(self.before_feed(values))))
        fed: torch.Tensor = values + self.dropout(feed)
        return fed

    def _attend(self, values: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            layer(values).unflatten(-1, (-1, self.head_width)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        attended: torch.Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return attended


class Head(nn.Module):
    """Scores for the next token."""

    def __init__(self, config: ModelConfig, vocabulary: int) -> None:
        super().__init__()
        self.norm, self.score = nn.LayerNorm(config.hidden), nn.Linear(config.hidden, vocabulary, bias=False)
        nn.init.normal_(self.score.weight, std=0.02)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.score(self.norm(values))
        return scores
