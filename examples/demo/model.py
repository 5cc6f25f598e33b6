"""A small transformer, large enough that its checkpoint looks like a real one: 17 million parameters."""

from typing import Final

import torch
from torch import nn

VOCABULARY: Final = 8192
WIDTH: Final = 384
HEADS: Final = 6
LAYERS: Final = 6
CONTEXT: Final = 64


class Block(nn.Module):
    """Attention and a feed-forward layer, each after a norm and around a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.feed_forward_norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.down = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Map `[batch, context, WIDTH]` to the same shape."""
        batch, context, _ = hidden.shape
        qkv = self.qkv(self.attention_norm(hidden)).view(batch, context, 3, HEADS, WIDTH // HEADS)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.out(mixed.transpose(1, 2).reshape(batch, context, WIDTH))
        return hidden + self.down(nn.functional.gelu(self.up(self.feed_forward_norm(hidden))))


class Transformer(nn.Module):
    """A causal language model."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Map tokens `[batch, context]` to logits `[batch, context, VOCABULARY]`."""
        hidden = self.embedding(tokens)
        for layer in self.layers:
            hidden = layer(hidden)
        logits: torch.Tensor = self.head(self.norm(hidden))
        return logits
