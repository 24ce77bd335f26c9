"""Model wrappers: sampling by column, exact distributions, NumPy and torch alike, and the stack they form."""

import numpy as np
import pytest
import torch
from torch import nn

from ding_like.data import ArrayDict
from ding_like.model import model_wrap
from ding_like.model.normalizer import NormalizedModel
from ding_like.model.template.q_learning import DQN
from ding_like.model.template.vac import VAC
from ding_like.model.wrapper import ModelWrapper, register_wrapper
from ding_like.utils import UnknownNameError
from tests.helpers import Constant, chi_limit, chi_square, make_policy

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


# ---------------------------------------------------------------- base
class Keywords(nn.Module):
    def forward(self, x, inference=True):
        return {"got": inference}


class AnyKeywords(nn.Module):
    def forward(self, x, **kwargs):
        return {"got": kwargs}


def test_keywords_reach_only_a_forward_that_accepts_them():
    assert "logit" in model_wrap(Logits()).forward(torch.zeros(1, 2), inference=True, enable_fast_timestep=True)
    assert model_wrap(Keywords()).forward(torch.zeros(1), inference=False, saved_state_timesteps=[1]) == {"got": False}
    assert model_wrap(AnyKeywords()).forward(torch.zeros(1), a=1)["got"] == {"a": 1}


def test_keywords_are_those_of_the_network_inside_a_normaliser():
    model = NormalizedModel(Keywords(), 1)
    assert model_wrap(model).forward(torch.zeros(2, 1), inference=False, data_id=[0]) == {"got": False}


def test_attributes_of_the_network_are_those_of_the_wrapper():
    net = DQN(4, 2)
    wrapped = model_wrap(model_wrap(net, wrapper_name="argmax_sample"), wrapper_name="base")
    assert wrapped.encoder is net.encoder
    with pytest.raises(AttributeError):
        _ = wrapped.nothing_of_that_name


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


def test_a_mode_is_not_told_to_a_network_without_modes():
    x = np.zeros((2, 4), np.float32)
    for data in (x, torch.as_tensor(x)):
        assert list(model_wrap(DQN(4, 2)).forward(data, mode="compute_actor")) == ["logit"]


def test_resets_pass_through_every_sampler():
    register_wrapper("remember", Remember)
    for name in ("argmax", "deterministic", "eps_greedy", "multinomial", "reparam"):
        inner = model_wrap(Logits(), wrapper_name="remember")
        model_wrap(inner, wrapper_name=f"{name}_sample").reset(data_id=[1])
        assert inner.resets == [[1]]


# ---------------------------------------------------------------- target
def weights(model):
    return model.state_dict()["model"]["q"].tolist()


def test_target_assign_copies_at_every_freq_th_update():
    source = Constant(1.0, 2.0)
    target = model_wrap(Constant(0.0, 0.0), wrapper_name="target", update_type="assign", update_kwargs={"freq": 3})
    seen = []
    for k in range(1, 8):
        source.q.data.fill_(k)
        target.update(source)
        seen.append(weights(target)[0])
    assert seen == [0, 0, 3, 3, 3, 6, 6]
    target.update(source, direct=True)
    assert weights(target) == [7, 7]
    assert not any(p.requires_grad for p in target.parameters())


class Noisy(nn.Module):
    """Dropout and batch-norm after a linear layer."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2))

    def forward(self, x):
        return {"logit": self.layers(x)}


def test_a_target_network_makes_no_noise_and_follows_the_statistics():
    source, x = Noisy(), torch.randn(6, 4)
    target = model_wrap(Noisy(), wrapper_name="target", update_type="assign", update_kwargs={"freq": 1})
    for _ in range(3):
        source(10 + x)
        target.update(source)
    assert source.training and torch.equal(target.forward(x)["logit"], target.forward(x)["logit"])
    one_by_one = torch.cat([target.forward(row[None])["logit"] for row in x])
    torch.testing.assert_close(target.forward(x)["logit"], one_by_one)
    torch.testing.assert_close(target.forward(x)["logit"], source.eval()(x)["logit"])


def test_the_targets_of_a_policy_stay_without_noise_while_it_learns():
    policy, x = make_policy(model=Noisy(), obs_shape=4, learn={"target_update_freq": 1}), torch.randn(6, 4)
    for _ in range(2):
        policy.learn_mode.forward(
            ArrayDict(obs=x, next_obs=x, action=torch.zeros(6, dtype=int), reward=torch.ones(6), discount=torch.ones(6))
        )
        assert policy.get_model().training
        says = [policy._target_model.forward(x)["logit"] for _ in range(2)]
        torch.testing.assert_close(says[0], says[1], rtol=0, atol=0)


def test_target_momentum_has_its_closed_form():
    theta, source = 0.1, Constant(1.0, -2.0)
    target = model_wrap(
        Constant(5.0, 5.0), wrapper_name="target", update_type="momentum", update_kwargs={"theta": theta}
    )
    for k in range(1, 6):
        target.update(source.state_dict() if k % 2 else source)
        keep = (1 - theta) ** k
        assert weights(target) == pytest.approx([keep * 5 + (1 - keep), keep * 5 - 2 * (1 - keep)], rel=1e-6)
    target.update(source, direct=True)
    assert weights(target) == [1, -2]


@pytest.mark.parametrize(("kind", "kwargs"), [("assign", {"freq": 1}), ("momentum", {"theta": 0.5})])
def test_buffers_follow_whole(kind, kwargs):
    source, net = nn.BatchNorm1d(2), nn.BatchNorm1d(2)
    target = model_wrap(net, wrapper_name="target", update_type=kind, update_kwargs=kwargs)
    source.running_mean.fill_(8.0)
    source.num_batches_tracked.fill_(5)
    target.update(source)
    assert net.running_mean.tolist() == [8, 8] and net.num_batches_tracked == 5


@pytest.mark.parametrize(("kind", "kwargs"), [("assign", {"freq": 1}), ("momentum", {"theta": 0.5})])
def test_a_state_dict_taken_before_an_update_keeps_its_values(kind, kwargs):
    target = model_wrap(Constant(0.0, 0.0), wrapper_name="target", update_type=kind, update_kwargs=kwargs)
    state = target.state_dict()
    target.update(Constant(4.0, 4.0))
    assert state["model"]["q"].tolist() == [0, 0] and weights(target)[0] > 0
    target.load_state_dict(state)
    assert weights(target) == [0, 0] and target.state_dict()["count"] == state["count"]


def test_the_update_count_is_state():
    source = Constant(1.0, 1.0)
    kwargs = dict(wrapper_name="target", update_type="assign", update_kwargs={"freq": 3})
    target = model_wrap(Constant(0.0, 0.0), **kwargs)
    target.update(source)
    target.update(source)
    other = model_wrap(Constant(0.0, 0.0), **kwargs)
    other.load_state_dict(target.state_dict())
    other.update(source)
    assert weights(other) == [1, 1]
    other.reset(target_update_count=1)
    source.q.data.fill_(2)
    other.update(source)
    assert weights(other) == [1, 1]
    other.update(source)
    assert weights(other) == [2, 2]


@pytest.mark.parametrize(
    ("kind", "kwargs", "says"),
    [
        ("copy", {}, r"update_type is 'copy'; wanted one of \['assign', 'momentum'\]"),
        ("assign", {"theta": 0.1}, "update_type 'assign' takes 'freq' alone"),
        ("assign", None, "takes 'freq' alone"),
        ("momentum", {"theta": 0.1, "freq": 2}, "takes 'theta' alone"),
        ("assign", {"freq": 0}, "freq is 0; wanted at least 1"),
        ("momentum", {"theta": 0.0}, "theta is 0.0; wanted more than 0"),
        ("momentum", {"theta": 1.5}, "theta is 1.5"),
    ],
)
def test_wrong_update_settings_are_named(kind, kwargs, says):
    with pytest.raises(ValueError, match=says):
        model_wrap(Constant(0.0), wrapper_name="target", update_type=kind, update_kwargs=kwargs)


# ---------------------------------------------------------------- stacks and registration
class Remember(ModelWrapper):
    def __init__(self, model, scale=1):
        super().__init__(model)
        self.scale, self.resets = scale, []

    def forward(self, data, **kwargs):
        output = self._model.forward(data, **kwargs)
        output["scaled"] = output["logit"] * self.scale
        return output

    def reset(self, data_id=None, **kwargs):
        self.resets.append(data_id)
        super().reset(data_id=data_id, **kwargs)


def test_a_registered_wrapper_is_made_by_name_and_reset_through_any_stack():
    register_wrapper("remember", Remember)
    inner = model_wrap(Logits(), wrapper_name="remember", scale=3)
    stack = model_wrap(model_wrap(inner, wrapper_name="eps_greedy_sample"), wrapper_name="remember")
    out = stack.forward(rows(1, 2, n=2), eps=0.0, noise=uniforms(2, 2))
    assert out["action"].tolist() == [1, 1] and out["scaled"].tolist() == [[1, 2], [1, 2]]
    stack.reset(data_id=[0, 3])
    stack.reset()
    assert inner.resets == stack.resets == [[0, 3], None]


def test_unknown_wrapper_is_named_with_suggestions():
    with pytest.raises(UnknownNameError, match=r"no model_wrapper is called 'eps_greedy'.*'eps_greedy_sample'"):
        model_wrap(Logits(), wrapper_name="eps_greedy")


def test_only_wrapper_classes_are_registered():
    with pytest.raises(TypeError, match=r"wrapper 'own' is .*wanted a subclass of ModelWrapper"):
        register_wrapper("own", Logits)
