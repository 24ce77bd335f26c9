"""Q-learning on windows against a plain-Python float64 sum, step by step from the episodes that they were cut from."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ding_like.config import ConfigError
from ding_like.data import ArrayDict, tree_map
from ding_like.model import model_wrap
from ding_like.model.template.drqn import DRQN
from ding_like.policy.r2d2 import R2D2Policy
from ding_like.policy.sequences import SequenceQ, window_priority
from ding_like.rl_utils.adder import get_train_sample
from ding_like.rl_utils.value_rescale import value_inv_transform, value_transform
from tests.helpers import make_policy
from tests.model.recurrent_cases import in_type
from tests.policy.elman import Elman, elman_step, errors_of, network_step

GAMMA = 0.9


# ---------------------------------------------------------------- episodes and their windows
class Episodes:
    """Episodes of random numbers, `ends` their (length, whether truncated); a stored state beside every step."""

    def __init__(self, ends, net, seed=0, actions=3, size=2):
        rng = np.random.default_rng(seed)
        self.ends = ends
        self.obs = [rng.normal(size=(n + 1, size)) for n, _ in ends]  # the last is the final observation
        self.action = [rng.integers(0, actions, n) for n, _ in ends]
        self.reward = [rng.normal(size=n) * 3 for n, _ in ends]
        start = net.initial_state(1)
        self.state = [
            [tree_map(lambda x, t=t: x + t * torch.as_tensor(rng.normal(size=x.shape)), start) for t in range(n)]
            for n, _ in ends
        ]  # the initial one at step 0

    def fields(self):
        """All steps, one after another `[L]`; `place` is (episode, step)."""
        last = [np.arange(n) == n - 1 for n, _ in self.ends]
        flags = np.concatenate(last), np.concatenate([end & trunc for end, (_, trunc) in zip(last, self.ends)])
        states = [state for episode in self.state for state in episode]
        return ArrayDict(
            obs=np.concatenate([obs[:-1] for obs in self.obs]),
            next_obs=np.concatenate([obs[1:] for obs in self.obs]),
            action=np.concatenate(self.action),
            reward=np.concatenate(self.reward),
            done=flags[0],
            terminated=flags[0] & ~flags[1],
            truncated=flags[1],
            place=np.concatenate([[(e, t) for t in range(n)] for e, (n, _) in enumerate(self.ends)]),
            prev_state=tree_map(lambda *xs: torch.cat(xs).numpy(), *states),
        )

    def windows(self, burnin, unroll_len, nstep):
        """Time-major `[U, N]`, as tensors."""
        made = get_train_sample(self.fields(), unroll_len, burnin=burnin, tail=nstep)
        del made["next_obs"], made["truncated"]
        return tree_map(lambda x: torch.as_tensor(x).transpose(0, 1).contiguous(), made)


def along(step, net, episodes, e, first, state, stop):
    """Q-values and states of the steps from `first` to before `stop`, the final observation among them."""
    values, states = {}, {first: state}
    for t in range(first, stop):
        values[t], states[t + 1] = step(net, episodes.obs[e][t], states[t])
    return values, states


def h(x):
    return math.copysign(math.sqrt(abs(x) + 1) - 1, x) + 1e-3 * x


def h_inverse(x):
    low, high = -1e6, 1e6
    for _ in range(200):  # by halving: no formula in common
        middle = (low + high) / 2
        low, high = (middle, high) if h(middle) < x else (low, middle)
    return (low + high) / 2


def by_definition(episodes, online, target, step, e, first, span, nstep, burnin, double, rescale, stored):
    """Of the window of episode e that trains from step `first`: triples (taken, wanted, state at `first`) a step."""
    length, truncated = episodes.ends[e]
    begin = max(first - burnin, 0)
    state = episodes.state[e][begin] if stored else tree_map(torch.zeros_like, episodes.state[e][begin])
    stop = length + 1 if truncated else length
    q, states = along(step, online, episodes, e, begin, state, stop)
    q_target, _ = along(step, target, episodes, e, begin, state, stop)
    found = []
    for t in range(first, min(first + span, length)):
        k = min(nstep, length - t)
        total = sum(GAMMA**i * float(episodes.reward[e][t + i]) for i in range(k))
        if t + k < length or truncated:
            chooser = q[t + k] if double else q_target[t + k]
            ahead = q_target[t + k][int(np.argmax(chooser))]
            total += GAMMA**k * (h_inverse(ahead) if rescale else ahead)
        found.append((q[t][episodes.action[e][t]], h(total) if rescale else total))
    return found, states[first]


class Values:
    """`SequenceQ`, and what Q-learning makes of it: values `taken`, the `wanted` ones and `mask`, all `[S, N]`."""

    def __init__(self, online, target, burnin, unroll_len, nstep, double, rescale, stored):
        nets = [model_wrap(net, wrapper_name="base") for net in (online, target)]
        self._q, self._rescale = SequenceQ(*nets, (burnin, unroll_len, nstep, GAMMA, stored), double), rescale

    def errors(self, data):
        return errors_of(self._q.outputs(data), self._rescale)


def assert_as_defined(episodes, online, target, step, burnin, span, nstep, **how):
    data = episodes.windows(burnin, span + nstep, nstep)
    errors = Values(online, target, burnin, span + nstep, nstep, **how).errors(data)
    assert errors.taken.requires_grad and not errors.wanted.requires_grad
    assert errors.taken.shape == errors.wanted.shape == errors.mask.shape == (span, data["reward"].shape[1])
    for n, (e, first) in enumerate(data["place"][burnin].tolist()):
        found, _ = by_definition(episodes, online, target, step, e, first, span, nstep, burnin, **how)
        assert errors.mask[:, n].tolist() == [s < len(found) for s in range(span)]
        wanted = np.array([*found, *[(0.0, 0.0)] * (span - len(found))])
        np.testing.assert_allclose(errors.taken[:, n].tolist(), wanted[:, 0], rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(errors.wanted[:, n].tolist(), wanted[:, 1], rtol=1e-9, atol=1e-11)


ends = st.lists(st.tuples(st.integers(1, 12), st.booleans()), min_size=1, max_size=4)
switches = dict(double=st.booleans(), rescale=st.booleans(), stored=st.booleans())


@settings(max_examples=60)
@given(ends, st.integers(0, 4), st.integers(1, 5), st.integers(1, 3), st.fixed_dictionaries(switches))
def test_values_and_targets_are_those_of_the_definition(ends, burnin, span, nstep, how):
    online, target = Elman(seed=1), Elman(seed=2)
    assert_as_defined(Episodes(ends, online), online, target, elman_step, burnin, span, nstep, **how)


@pytest.mark.parametrize("lstm_type", ["pytorch", "gru", "normal", "hpc"])
@pytest.mark.parametrize(("burnin", "nstep", "how"), [(0, 1, (0, 0, 0)), (3, 2, (1, 1, 1)), (5, 3, (1, 0, 1))])
def test_those_of_drqn_are(lstm_type, burnin, nstep, how, monkeypatch):
    torch.manual_seed(0)
    nets = [in_type(DRQN(2, 3, [5], lstm_type=lstm_type, num_layers=2), torch.float64, monkeypatch) for _ in "ab"]
    episodes = Episodes([(1, False), (9, True), (4, True), (11, False), (3, False)], nets[0])
    flags = dict(zip(("double", "rescale", "stored"), map(bool, how)))
    assert_as_defined(episodes, *nets, network_step, burnin, 3, nstep, **flags)


def test_a_long_stretch_without_an_end_has_no_null_slot_and_no_cut():
    """Windows [U, N] out of the middle of an endless episode."""
    online, target = Elman(seed=1), Elman(seed=2)
    episodes = Episodes([(20, True)], online)
    data = episodes.windows(2, 6, 2)
    middle = tree_map(lambda x: x[:, 1:3], data)
    assert not bool(middle["null"].any())
    q = Values(online, target, 2, 6, 2, True, False, True)
    whole, part = q.errors(data), q.errors(middle)
    torch.testing.assert_close(part.wanted, whole.wanted[:, 1:3], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(part.taken, whole.taken[:, 1:3], rtol=1e-12, atol=1e-12)


# ---------------------------------------------------------------- loss and gradient
ENDS = [(7, True), (1, False), (12, False), (3, True), (2, False)]
BURNIN, SPAN, NSTEP = 3, 4, 2


def policy_of(online, target, **over):
    settings = dict(nstep=NSTEP, burnin_step=BURNIN, learn_unroll_len=SPAN + NSTEP, discount_factor=GAMMA)
    learn = {"loss": "huber", "optimizer": "sgd", "learning_rate": 1.0, "value_rescale": False, **over.pop("learn", {})}
    policy = make_policy(R2D2Policy, obs_shape=2, action_shape=3, model=online, learn=learn, **settings, **over)
    policy._target_model.update(target, direct=True)
    return policy


def learn(policy, data):
    """What the policy returns and the gradient of every parameter, as a step of size 1 shows it."""
    before = {k: v.detach().clone() for k, v in policy.get_model().named_parameters()}
    info = policy.learn_mode.forward(data)
    return info, {k: before[k] - v.detach() for k, v in policy.get_model().named_parameters()}


def defined_loss(data, episodes, online, target, weight, moved=None):
    """The mean Huber loss over real steps; with `moved` the values of those steps are that network's, and all else
    (targets, the state at the first of them) is of `online`."""
    total, count, sizes = 0.0, 0, []
    for n, (e, first) in enumerate(data["place"][BURNIN].tolist()):
        how = dict(double=True, rescale=False, stored=True)
        found, state = by_definition(episodes, online, target, elman_step, e, first, SPAN, NSTEP, BURNIN, **how)
        q, _ = along(elman_step, moved or online, episodes, e, first, state, first + len(found))
        taken = [q[t][episodes.action[e][t]] for t in range(first, first + len(found))]
        td = [abs(wanted - now) for (_, wanted), now in zip(found, taken)]
        total += weight[n] * sum(0.5 * x * x if x <= 1 else x - 0.5 for x in td)
        count += len(td)
        sizes.append(0.9 * max(td) + 0.1 * sum(td) / len(td))
    return total / count, sizes


@pytest.mark.parametrize("weighted", [False, True])
def test_loss_gradient_and_priorities_are_those_of_the_definition(weighted):
    """Case B45: the weight of a window is that of every step in it, and its priority is 0.9 max + 0.1 mean of |td|."""
    online, target = Elman(seed=1), Elman(seed=2)
    episodes = Episodes(ENDS, online)
    data = episodes.windows(BURNIN, SPAN + NSTEP, NSTEP)
    weight = np.random.default_rng(5).uniform(0.1, 1, data["reward"].shape[1]) if weighted else np.ones(99)
    if weighted:
        data["weight"] = torch.as_tensor(weight)
    old = Elman(seed=1)
    info, gradient = learn(policy_of(online, target), data)
    wanted, sizes = defined_loss(data, episodes, old, target, weight)
    assert info["total_loss"].item() == pytest.approx(wanted, rel=1e-12)
    assert info["priority"].tolist() == pytest.approx(sizes, rel=1e-9)
    assert max(sizes) > 1 > min(sizes)
    for name, parameter in old.named_parameters():
        for at in np.ndindex(*parameter.shape):
            slope = difference(data, episodes, old, target, weight, name, at)
            assert gradient[name][at].item() == pytest.approx(slope, abs=1e-7)


def difference(data, episodes, online, target, weight, name, at, step=1e-5):
    found = []
    for sign in (1, -1):
        moved = Elman(seed=1)
        with torch.no_grad():
            moved.get_parameter(name)[at] += sign * step
        found.append(defined_loss(data, episodes, online, target, weight, moved)[0])
    return (found[0] - found[1]) / (2 * step)


# ---------------------------------------------------------------- what null slots show
def outcome(data, double=True):
    info, gradient = learn(policy_of(Elman(seed=1), Elman(seed=2), double=double), data)
    return [info["total_loss"], info["priority"], info["q_value"], info["td_error"], *gradient.values()]


def final_slots(data, truncated):
    """Slots that show the final observation of a truncated (or else terminated) episode."""
    real = ~data["null"]
    end = real & data["done"] & (data["terminated"] != truncated)
    slots = torch.zeros_like(end)
    slots[1:] = end[:-1]
    return slots


@pytest.mark.parametrize("double", [False, True])
def test_what_stands_in_null_slots_changes_nothing(double):
    """Case B30."""
    net = Elman(seed=1)
    data = Episodes(ENDS, net).windows(BURNIN, SPAN + NSTEP, NSTEP)
    null = data["null"]
    assert bool(null[0].any()) and bool(null[-1].any())
    wanted = outcome(data, double)
    spoilt = data.copy()
    spoilt["obs"], spoilt["reward"] = data["obs"].clone(), data["reward"].clone()
    spoilt["obs"][null & ~final_slots(data, truncated=True)] = math.nan
    spoilt["reward"][null] = math.nan
    spoilt["done"], spoilt["action"] = data["done"] & ~null, data["action"].where(~null, 2)
    for got, was in zip(outcome(spoilt, double), wanted, strict=True):
        assert torch.equal(got, was)


def test_the_final_observation_is_used_where_the_episode_was_truncated_and_only_there():
    net = Elman(seed=1)
    data = Episodes(ENDS, net).windows(BURNIN, SPAN + NSTEP, NSTEP)
    losses = []
    for truncated in (True, False):
        changed = data.copy()
        changed["obs"] = data["obs"].clone()
        changed["obs"][final_slots(data, truncated)] += 5
        losses.append(outcome(changed)[0].item())
    loss = outcome(data)[0].item()
    assert abs(losses[0] - loss) > 1e-3 and losses[1] == loss


@pytest.mark.parametrize("lstm_type", ["pytorch", "gru", "normal", "hpc"])
def test_a_mask_of_actions_and_integers_in_null_slots_change_nothing(lstm_type):
    torch.manual_seed(0)
    spec = {"x": 2, "kind": {"@one_hot": [4]}}
    nets = [DRQN(spec, 3, [6], lstm_type=lstm_type) for _ in "ab"]
    data = Episodes(ENDS, nets[0]).windows(BURNIN, SPAN + NSTEP, NSTEP)
    data["reward"] = data["reward"].float()
    null = data["null"]
    rng = np.random.default_rng(2)
    kind = torch.as_tensor(rng.integers(0, 4, null.shape))
    x = data["obs"].float()
    data["obs"] = {"x": x, "kind": kind}
    data["prev_state"] = tree_map(lambda s: s.float(), data["prev_state"])
    q = Values(*nets, BURNIN, SPAN + NSTEP, NSTEP, True, True, True)
    wanted = q.errors(data)
    blank = null & ~final_slots(data, truncated=True)
    data["obs"] = {"x": x.masked_fill(blank[..., None], math.nan), "kind": kind.masked_fill(blank, 3)}
    got = q.errors(data)
    assert torch.equal(got.taken, wanted.taken) and torch.equal(got.wanted, wanted.wanted)


# ---------------------------------------------------------------- order, sizes, numbers
def test_permuted_windows_give_permuted_numbers_and_any_batch_size_will_do():
    online, target = Elman(seed=1), Elman(seed=2)
    data = Episodes(ENDS, online).windows(BURNIN, SPAN + NSTEP, NSTEP)
    q = Values(online, target, BURNIN, SPAN + NSTEP, NSTEP, True, True, True)
    whole, n = q.errors(data), data["reward"].shape[1]
    for order in (torch.arange(n).flip(0), torch.tensor([2]), torch.tensor([1, 1, 4])):
        some = q.errors(tree_map(lambda x, i=order: x[:, i], data))
        torch.testing.assert_close(some.taken, whole.taken[:, order], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(some.wanted, whole.wanted[:, order], rtol=1e-12, atol=1e-12)


def test_a_window_has_the_priority_of_the_paper():
    """Case B45: |td| = [1, 2, 3] and eta = 0.9 give 2.9, whatever stands in steps that are none."""
    td = torch.tensor([[1.0, -4.0, 0.5], [-2.0, math.nan, math.inf], [3.0, math.nan, 0.0]])
    mask = torch.tensor([[1, 1, 0], [1, 0, 0], [1, 0, 0]]).bool()
    assert window_priority(td, mask).tolist() == pytest.approx([2.9, 4.0, 0.0])
    assert window_priority(td, mask, eta=0.0).tolist() == pytest.approx([2.0, 4.0, 0.0])


def test_values_are_rescaled_as_in_the_paper():
    """Case B45."""
    ten = torch.tensor([10.0, -10.0], dtype=torch.float64)
    assert value_transform(ten)[0].item() == pytest.approx(2.32662, abs=1e-5)
    assert value_inv_transform(value_transform(ten)).tolist() == pytest.approx([10, -10], abs=1e-6)


def test_the_target_of_an_end_is_the_rescaled_reward():
    online = Elman(seed=1)
    episodes = Episodes([(1, False)], online)
    episodes.reward[0][0] = 10.0
    q = Values(online, online, 0, 2, 1, True, True, True)
    assert q.errors(episodes.windows(0, 2, 1)).wanted.tolist() == [[pytest.approx(2.32662, abs=1e-5)]]


@pytest.mark.parametrize(("unroll_len", "nstep"), [(3, 3), (2, 5)])
def test_a_window_of_which_no_step_would_train_is_refused(unroll_len, nstep):
    net = Elman()
    with pytest.raises(ConfigError, match=f"policy.learn_unroll_len is {unroll_len} and policy.nstep is {nstep}"):
        Values(net, net, 0, unroll_len, nstep, True, True, True)
