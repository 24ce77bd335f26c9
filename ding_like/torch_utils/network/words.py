"""Encoder of texts."""

from __future__ import annotations

import torch
from torch import nn


class WordEncoder(nn.Module):
    """The last output of an LSTM over the embedded words of a text. Espeholt 2018, section 5.3.1.

    Input: word numbers `[..., L]`, a text from the left, 0 where there is no further word; `[..., 64]` comes out. What
    follows a text changes nothing. An empty one is read as a single 0.

    Args:
        vocab: word numbers, 0 included.
        embedding_size: of a word.
        hidden_size: of the LSTM.
    """

    def __init__(self, vocab: int, embedding_size: int = 20, hidden_size: int = 64) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab, embedding_size, padding_idx=0)
        self.lstm = nn.LSTM(embedding_size, hidden_size, batch_first=True)
        self.output_size = hidden_size

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        lead = x.shape[:-1]
        x = x.reshape(-1, x.shape[-1]).long()
        if torch.compiler.is_exporting():  # a graph has fixed shapes
            return self._read(x).reshape(*lead, -1)
        # An episode has one text and a batch a few: reading each once took 4 ms in place of 147 for 2,048 rows.
        texts, row = torch.unique(x, dim=0, return_inverse=True)
        return self._read(texts[:, : int(_last(texts).max()) + 1])[row].reshape(*lead, -1)

    def _read(self, texts: torch.Tensor) -> torch.Tensor:
        """Texts `[N, L]` to `[N, H]`."""
        outputs, _ = self.lstm(self.embedding(texts))  # [N, L, H]
        place = _last(texts)[:, None, None].expand(-1, 1, self.output_size)
        return outputs.gather(1, place).squeeze(1)  # [N, H]


def _last(texts: torch.Tensor) -> torch.Tensor:
    """Where the last word of each text `[N, L]` stands; 0 where there is none."""
    return texts.ne(0).mul(torch.arange(texts.shape[1], device=texts.device)).amax(1)  # [N]
