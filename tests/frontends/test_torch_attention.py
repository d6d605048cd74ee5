"""Attention of PyTorch whose mask hides all of a row: zeros, as eager has it, not NaN."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import intaglio

torch = pytest.importorskip("torch", reason="torch is not installed")


class Masked(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, bools: bool) -> None:
        super().__init__()
        self.bools = bools

    def forward(self, q: Any, mask: Any) -> Any:
        if not self.bools:
            mask = torch.zeros_like(mask, dtype=q.dtype).masked_fill(~mask, float("-inf"))
        return torch.nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=mask)


@pytest.mark.parametrize("bools", [True, False])
def test_a_row_that_sees_nothing_is_zeros(bools: bool) -> None:
    module = Masked(bools).eval()
    rows = torch.export.Dim("T", min=1, max=9)
    example = torch.randn(1, 2, 4, 8), torch.ones(1, 1, 4, 4, dtype=torch.bool)
    package = intaglio.compile(torch.export.export(module, example, dynamic_shapes=({2: rows}, {2: rows, 3: rows})))
    for count in (1, 4, 9):
        q, mask = torch.randn(1, 2, count, 8), torch.rand(1, 1, count, count) > 0.4
        mask[..., 0, :] = False
        made = package(q.numpy(), mask.numpy())
        assert np.allclose(np.asarray(made), module(q, mask).numpy(), atol=1e-5)
        assert not np.asarray(made)[:, :, 0].any()
