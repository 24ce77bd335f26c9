"""Sampling wrappers: by column, exact distributions, NumPy and torch alike."""

import numpy as np
import pytest
import torch
from torch import nn

from ding_like.model import model_wrap
from ding_like.model.template.vac import VAC
from tests.helpers import chi_limit, chi_square

N = 20000


class Logits(nn.Module):
    """The observation is the logit."""

    def forward(self, x):
        return {"logit": x}

    def numpy_forward(self, x):
        return {"logit": x}


def uniforms(n, width, seed=0):
    return np.random.default_rng(seed).random((n, width))


def rows(*q, n=N):
    return np.tile(np.float32(q), (n, 1))


# ---------------------------------------------------------------- argmax
def test_argmax_is_the_best_action_and_keeps_the_logit():
    x = np.float32([[1, 3, 2], [9, 0, 1]])
    wrapped = model_wrap(Logits(), wrapper_name="argmax_sample")
    for data in (x, torch.as_tensor(x)):
        out = wrapped.forward(data)
        assert out["action"].tolist() == [1, 0] and out["logit"].tolist() == x.tolist()
        assert isinstance(out["action"], type(data))


# ---------------------------------------------------------------- epsilon
def test_epsilon_zero_is_greedy_and_one_is_uniform():
    wrapped = model_wrap(Logits(), wrapper_name="eps_greedy_sample")
    noise = uniforms(N, wrapped.noise_width)
    assert (wrapped.forward(rows(0, 5, 1), eps=0.0, noise=noise)["action"] == 1).all()
    counts = np.bincount(wrapped.forward(rows(0, 5, 1), eps=1.0, noise=noise)["action"], minlength=3)
    assert chi_square(counts, np.full(3, N / 3)) < chi_limit(3)


def test_epsilon_explores_that_share_of_the_columns_uniformly():
    wrapped = model_wrap(Logits(), wrapper_name="eps_greedy_sample")
    action = wrapped.forward(rows(0, 5, 1, 2), eps=0.4, noise=uniforms(N, 2))["action"]
    counts = np.bincount(action, minlength=4)
    assert chi_square(counts, N * np.array([0.1, 0.7, 0.1, 0.1])) < chi_limit(4)


def test_columns_decide_independently():
    """The fault 'all columns explore together' makes every pair of columns agree on whether it explores."""
    wrapped = model_wrap(Logits(), wrapper_name="eps_greedy_sample")
    rng = np.random.default_rng(1)
    steps = np.array(
        [wrapped.forward(rows(0, 5, n=2), eps=0.5, noise=rng.random((2, 2)))["action"] for _ in range(4000)]
    )
    pairs = np.bincount(2 * steps[:, 0] + steps[:, 1], minlength=4)
    assert chi_square(pairs, 4000 * np.array([1, 3, 3, 9]) / 16) < chi_limit(4)


def test_columns_decide_independently_without_given_noise():
    wrapped = model_wrap(Logits(), wrapper_name="eps_greedy_sample")
    np.random.seed(0)
    action = wrapped.forward(rows(0, 5, n=4000), eps=0.5)["action"]
    assert chi_square(np.bincount(action, minlength=2), [1000, 3000]) < chi_limit(2)


def test_epsilon_may_be_one_a_column():
    wrapped = model_wrap(Logits(), wrapper_name="eps_greedy_sample")
    eps = np.repeat([0.0, 1.0], N // 2)
    action = wrapped.forward(rows(0, 5, 1), eps=eps, noise=uniforms(N, 2))["action"]
    assert (action[: N // 2] == 1).all()
    assert chi_square(np.bincount(action[N // 2 :], minlength=3), np.full(3, N / 6)) < chi_limit(3)


@pytest.mark.parametrize(
    ("name", "kwargs"), [("eps_greedy_sample", {"eps": 0.5}), ("multinomial_sample", {"alpha": 0.7})]
)
def test_given_noise_decides_and_numpy_equals_torch(name, kwargs):
    wrapped = model_wrap(Logits(), wrapper_name=name)
    x = np.random.default_rng(2).normal(size=(500, 4)).astype(np.float32)
    noise = uniforms(500, wrapped.noise_width)
    first = wrapped.forward(x, noise=noise, **kwargs)["action"]
    np.testing.assert_array_equal(first, wrapped.forward(x, noise=noise, **kwargs)["action"])
    in_torch = wrapped.forward(torch.as_tensor(x), noise=noise, **kwargs)["action"]
    assert isinstance(in_torch, torch.Tensor) and in_torch.dtype == torch.int64 and first.dtype == np.int64
    np.testing.assert_array_equal(in_torch.numpy(), first)
    assert len(np.unique(first)) == 4


# ---------------------------------------------------------------- multinomial
@pytest.mark.parametrize("alpha", [0.5, 1.0, 3.0])
def test_multinomial_frequencies_are_softmax_at_that_temperature(alpha):
    logit = np.array([0.0, 2.0, -1.0, 1.0])
    wrapped = model_wrap(Logits(), wrapper_name="multinomial_sample")
    action = wrapped.forward(rows(*logit), alpha=alpha, noise=uniforms(N, 1))["action"]
    wanted = np.exp(logit / alpha) / np.exp(logit / alpha).sum()
    assert chi_square(np.bincount(action, minlength=4), N * wanted) < chi_limit(4)


def test_multinomial_with_large_logits_and_impossible_actions():
    wrapped = model_wrap(Logits(), wrapper_name="multinomial_sample")
    noise = np.concatenate([uniforms(998, 1), [[0.0], [np.nextafter(1.0, 0.0)]]])
    action = wrapped.forward(rows(-np.inf, 1e4, 1e4, -np.inf, n=1000), noise=noise)["action"]
    assert set(action.tolist()) == {1, 2}


def test_without_given_noise_the_global_generator_decides():
    for name, model, x in (
        ("multinomial_sample", Logits(), rows(0, 1, 2, n=50)),
        ("reparam_sample", Gauss([0.0, 0.0], [1.0, 1.0]), np.zeros((50, 1), np.float32)),
    ):
        wrapped = model_wrap(model, wrapper_name=name)
        drawn = []
        for seed in (3, 3, 4):
            np.random.seed(seed)
            drawn.append(wrapped.forward(x)["action"])
        np.testing.assert_array_equal(drawn[0], drawn[1])
        assert (drawn[0] != drawn[2]).any()


# ---------------------------------------------------------------- several actions at once
class Parts(nn.Module):
    """The observation is the logits of several actions side by side."""

    def __init__(self, *sizes):
        super().__init__()
        self.sizes = sizes

    def forward(self, x):
        return {"logit": x.split(self.sizes, -1)}

    def numpy_forward(self, x):
        return {"logit": tuple(np.split(x, np.cumsum(self.sizes)[:-1], -1))}


def test_each_of_several_actions_has_its_own_softmax():
    """All pairs at once: the numbers of one action tell nothing about the other."""
    a, b = np.array([0.0, 1.0]), np.array([0.5, -0.5, 2.0])
    wrapped = model_wrap(Parts(2, 3), wrapper_name="multinomial_sample", width=2)
    assert wrapped.noise_width == 2
    action = wrapped.forward(rows(*a, *b), noise=uniforms(N, 2))["action"]
    assert action.shape == (N, 2) and action.dtype == np.int64
    pairs = np.bincount(3 * action[:, 0] + action[:, 1], minlength=6)
    wanted = np.outer(np.exp(a) / np.exp(a).sum(), np.exp(b) / np.exp(b).sum()).ravel()
    assert chi_square(pairs, N * wanted) < chi_limit(6)


def test_the_best_of_several_actions_is_that_of_each():
    x = np.float32([[1, 2, 9, 0, 3], [5, 2, 0, 0, 1]])
    for name in ("argmax_sample", "deterministic_sample"):
        wrapped = model_wrap(Parts(2, 3), wrapper_name=name)
        for data in (x, torch.as_tensor(x)):
            action = wrapped.forward(data)["action"]
            assert isinstance(action, type(data)) and action.tolist() == [[1, 0], [0, 2]]


def test_the_width_is_one_wrappers_own():
    two = model_wrap(Parts(2, 3), wrapper_name="multinomial_sample", width=2)
    assert model_wrap(Logits(), wrapper_name="multinomial_sample").noise_width == 1 and two.noise_width == 2
    with pytest.raises(ValueError, match=r"noise has shape \(4, 1\); wanted \[B, 2\].*width=2"):
        two.forward(rows(1, 2, 3, 4, 5, n=4), noise=uniforms(4, 1))


# ---------------------------------------------------------------- Gaussian
class Gauss(nn.Module):
    """The same mu and sigma for every observation."""

    def __init__(self, mu, sigma):
        super().__init__()
        self.mu, self.sigma = nn.Parameter(torch.tensor(mu)), nn.Parameter(torch.tensor(sigma))

    def forward(self, x):
        shape = (len(x), len(self.mu))
        return {"logit": {"mu": self.mu.expand(shape), "sigma": self.sigma.expand(shape)}}

    def numpy_forward(self, x):
        return {"logit": {k: v.detach().numpy() for k, v in self.forward(x)["logit"].items()}}


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_a_gaussian_action_has_its_mean_and_deviation_in_every_dimension(kind):
    """Cells of equal probability under the normal distribution, and no correlation of the two dimensions."""
    mu, sigma = np.array([1.0, -3.0]), np.array([0.5, 2.0])
    wrapped = model_wrap(Gauss(mu.tolist(), sigma.tolist()), wrapper_name="reparam_sample", width=4)
    assert wrapped.noise_width == 4
    x = np.zeros((N, 1), np.float32) if kind == "numpy" else torch.zeros(N, 1)
    action = wrapped.forward(x, noise=uniforms(N, 4))["action"]
    action = action if kind == "numpy" else action.detach().numpy()
    assert action.shape == (N, 2) and action.dtype == np.float32
    z = (action - mu) / sigma
    np.testing.assert_allclose(z.mean(0), 0, atol=5 / np.sqrt(N))
    np.testing.assert_allclose(z.std(0), 1, atol=5 / np.sqrt(2 * N))
    assert abs(np.corrcoef(z.T)[0, 1]) < 5 / np.sqrt(N)
    cdf = torch.special.ndtr(torch.as_tensor(z)).numpy()
    for i in range(2):
        assert chi_square(np.histogram(cdf[:, i], 10, (0, 1))[0], np.full(10, N / 10)) < chi_limit(10)


def test_extreme_uniforms_give_finite_gaussian_actions():
    noise = np.array([[0.0, 0.0], [np.nextafter(1.0, 0.0), 0.0], [np.nextafter(1.0, 0.0), 0.5]])
    wrapped = model_wrap(Gauss([1.0], [2.0]), wrapper_name="reparam_sample", width=2)
    action = wrapped.forward(np.zeros((3, 1), np.float32), noise=noise)["action"][:, 0]
    far = 2 * np.sqrt(2 * 53 * np.log(2))  # 1 - u is 2^-53
    np.testing.assert_allclose(action, [1, 1 + far, 1 - far], rtol=1e-6)


def test_a_gaussian_action_passes_gradients():
    model = Gauss([1.0], [2.0])
    out = model_wrap(model, wrapper_name="reparam_sample").forward(torch.zeros(1, 1), noise=np.array([[0.5, 0.0]]))
    out["action"].sum().backward()
    assert model.mu.grad.item() == 1 and model.sigma.grad.item() == pytest.approx(np.sqrt(2 * np.log(2)))


def test_the_deterministic_gaussian_action_is_mu():
    wrapped = model_wrap(Gauss([1.0, -2.0], [1.0, 1.0]), wrapper_name="deterministic_sample")
    for x in (np.zeros((3, 1), np.float32), torch.zeros(3, 1)):
        assert wrapped.forward(x)["action"].tolist() == [[1, -2]] * 3


def test_a_sampler_for_another_kind_of_action_says_which_to_use():
    x = np.zeros((2, 1), np.float32)
    with pytest.raises(TypeError, match="use reparam_sample for continuous"):
        model_wrap(Gauss([0.0], [1.0]), wrapper_name="multinomial_sample").forward(x)
    with pytest.raises(TypeError, match="use multinomial_sample for discrete"):
        model_wrap(Logits(), wrapper_name="reparam_sample").forward(x)
    with pytest.raises(ValueError, match=r"noise has shape \(2, 2\); wanted \[B, 4\].*width=4"):
        wrapped = model_wrap(Gauss([0.0, 0.0], [1.0, 1.0]), wrapper_name="reparam_sample")
        wrapped.forward(x, noise=uniforms(2, 2))


# ---------------------------------------------------------------- actor-critic
@pytest.mark.parametrize(
    ("space", "shape", "name", "width"),
    [
        ("discrete", 4, "multinomial_sample", 1),
        ("multi_discrete", [4, 3], "multinomial_sample", 2),
        ("continuous", 2, "reparam_sample", 4),
    ],
)
def test_a_column_draws_the_same_action_in_every_batch(space, shape, name, width):
    """Matrix products of other sizes round differently, so Gaussian actions agree to rounding."""
    wrapped = model_wrap(VAC(3, shape, space), wrapper_name=name, width=width)
    x, noise = np.random.default_rng(5).normal(size=(64, 3)).astype(np.float32), uniforms(64, width)
    whole = wrapped.forward(x, noise=noise, mode="compute_actor_critic")
    order = np.random.default_rng(6).permutation(64)[:20]
    part = wrapped.forward(x[order], noise=noise[order], mode="compute_actor")
    assert "value" in whole and "value" not in part
    np.testing.assert_allclose(part["action"], whole["action"][order], atol=1e-5)
    in_torch = wrapped.forward(torch.as_tensor(x), noise=noise, mode="compute_actor")
    assert "value" not in in_torch and isinstance(in_torch["action"], torch.Tensor)
    np.testing.assert_allclose(in_torch["action"].detach(), whole["action"], atol=1e-5)
