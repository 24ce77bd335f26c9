"""Value rescaling: known values, inverse, slope."""

import pytest
import torch

from ding_like.rl_utils.value_rescale import value_inv_transform, value_transform


def test_known_values():
    """B45: h(10) = sqrt(11) - 1 + 0.01, and the inverse of +-10 comes back."""
    x = torch.tensor([10.0, -10.0], dtype=torch.float64)
    assert value_transform(x)[0].item() == pytest.approx(2.32662, abs=1e-5)
    torch.testing.assert_close(value_transform(value_inv_transform(x)), x, rtol=0, atol=1e-6)
    torch.testing.assert_close(value_inv_transform(value_transform(x)), x, rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-5), (torch.float64, 1e-12)])
@pytest.mark.parametrize("eps", [1e-3, 1e-2, 0.0])
def test_the_inverse_undoes_it_from_tiny_to_huge(dtype, tolerance, eps):
    x = torch.tensor([0.0, 1e-3, 0.5, 1.0, 30.0, 1e4], dtype=dtype)
    x = torch.cat([x, -x])
    back = value_inv_transform(value_transform(x, eps), eps)
    torch.testing.assert_close(back, x, rtol=tolerance, atol=tolerance)


def test_slope_at_zero_is_a_half_plus_eps():
    x = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    value_transform(x, 1e-2).backward()
    assert x.grad.item() == pytest.approx(0.51)
