"""IMPALA: its losses by hand, the ratio before an update, bootstraps at every kind of end, exact resume."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium import spaces

from ding_like.config import CfgDict, ConfigError, deep_merge_defaults
from ding_like.data import ArrayDict, torchify, tree_map
from ding_like.entry.build import full_config
from ding_like.entry.checks import check_spaces
from ding_like.envs.env_manager.vector_env_manager import VectorEnvManager
from ding_like.envs.vector import make_vec_fn
from ding_like.policy import impala
from ding_like.policy.impala import REWARD_CLIPS, IMPALAPolicy
from ding_like.rl_utils.vtrace import CORRECTIONS
from ding_like.utils import HOOK_REGISTRY
from ding_like.worker import SampleCollector
from ding_like.worker.replay_buffer import Queue
from tests.entry.resuming import OFTEN, Break, assert_equal_runs, broken_and_resumed, serial_pipeline
from tests.envs.toys import Count
from tests.helpers import make_collector, make_manager, make_policy, metrics, policy_config, result, single, tiny_config
from tests.policy.test_actor_critic import LinearV
from tests.policy.test_recurrent_actor_critic import ACTIONS, OBSERVATIONS, Wanders, minibatch
from tests.worker.test_masked_rows import NextStep
from tests.worker.test_sample_collector import Diary

SGD = dict(optimizer="sgd", grad_clip_norm=None, learning_rate=0.1)


@pytest.fixture
def seen(monkeypatch):
    """Every call of the returns: the ratios' logarithms and masks that went in, and what came out."""
    calls, whole = [], impala.corrected_returns

    def spy(correction, log_rho, *args, mask, **kwargs):
        calls.append((log_rho[mask], whole(correction, log_rho, *args, mask=mask, **kwargs), mask))
        return calls[-1][1]

    monkeypatch.setattr(impala, "corrected_returns", spy)
    return calls


def segments(steps=4, columns=5, seed=0, obs_size=3, actions=3):
    """Random segments `[U + 1, N]` with ends of both kinds, each truncated one followed by a null slot."""
    rng = np.random.default_rng(seed)
    lead = (steps + 1, columns)
    terminated, truncated = rng.random(lead) < 0.2, rng.random(lead) < 0.3
    mask = np.ones(lead, np.float32)
    for t in range(1, steps):
        mask[t, truncated[t - 1] & ~terminated[t - 1] & (mask[t - 1] > 0)] = 0
    mask[-1] = 0
    return ArrayDict(
        obs=rng.normal(size=(*lead, obs_size)).astype(np.float32), action=rng.integers(0, actions, lead),
        logit=rng.normal(size=(*lead, actions)).astype(np.float32), reward=rng.normal(size=lead).astype(np.float32),
        terminated=terminated, truncated=truncated, mask=mask,
    )  # fmt: skip


class Linear(torch.nn.Module):
    """`logit` and `value` of one linear layer."""

    def __init__(self, obs_size=3, actions=3):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(obs_size, actions + 1)

    def forward(self, x):
        out = self.layer(x)
        return {"logit": out[..., :-1], "value": out[..., -1]}


def target(s, value, reward, rho, lam, keep, over):
    """``v_s + sum over t of gamma^(t - s) c_s ... c_{t-1} rho_t delta_t`` of one column, up to the episode's end."""
    total, weight = value[s], 1.0
    for t in range(s, len(value) - 1):
        total += weight * rho[t] * (reward[t] + keep[t] * value[t + 1] - value[t])
        weight *= keep[t] * lam * rho[t]
        if over[t]:
            break
    return total


def by_hand(data, net, gamma, bar, lam, correction):
    """The three losses by the sums of the paper (section 4.1), in float64, one step after the other."""
    weight, bias = (p.detach().numpy().astype(np.float64) for p in net.layer.parameters())
    out = data["obs"] @ weight.T + bias
    pi, mu = (x - np.log(np.exp(x).sum(-1, keepdims=True)) for x in (out[..., :-1], data["logit"].astype(np.float64)))
    losses = []
    for n in range(out.shape[1]):
        value, reward = out[:, n, -1], data["reward"][:, n]
        log, acted = (np.array([x[a] for x, a in zip(each[:, n], data["action"][:, n])]) for each in (pi, mu))
        rho = np.minimum(bar, np.exp(log - acted) if correction == "vtrace" else np.ones_like(log))
        keep = np.where(data["terminated"][:, n], 0.0, gamma)
        over = data["terminated"][:, n] | data["truncated"][:, n]
        block = value, reward, rho, lam, keep, over
        for s in np.flatnonzero(data["mask"][:, n]):
            ahead = value[s + 1] if over[s] else target(s + 1, *block)
            advantage = rho[s] * (reward[s] + keep[s] * ahead - value[s])
            entropy = -(np.exp(pi[s, n]) * pi[s, n]).sum()
            losses.append((-advantage * log[s], 0.5 * (value[s] - target(s, *block)) ** 2, entropy))
    return np.mean(losses, 0)


@pytest.mark.parametrize("correction", ["vtrace", "none"])
@pytest.mark.parametrize(("bar", "lam"), [(1.0, 1.0), (1.7, 0.9)])
def test_the_losses_are_those_of_the_sums_in_the_paper(correction, bar, lam):
    net, data = Linear(), segments()
    learn = dict(**SGD, correction=correction, rho_bar=bar, c_bar=bar, lambda_=lam)
    policy = make_policy(IMPALAPolicy, model=net, discount_factor=0.9, learn=learn)
    wanted = by_hand(data, net, 0.9, bar, lam, correction)
    info = policy.learn_mode.forward(tree_map(torchify, data))
    found = [float(info[name]) for name in ("policy_loss", "value_loss", "entropy")]
    np.testing.assert_allclose(found, wanted, rtol=2e-5)
    np.testing.assert_allclose(float(info["total_loss"]), found[0] + 0.5 * found[1] - 0.01 * found[2], rtol=1e-5)


@pytest.mark.parametrize("correction", CORRECTIONS)
def test_what_stands_where_nothing_trains_changes_no_weight(correction):
    after = []
    for dirt in (False, True):
        net, data = Linear(), segments(steps=6, seed=1)
        real = data["mask"] > 0
        seen = real.copy()
        seen[1:] |= real[:-1] & ~data["terminated"][:-1]
        if dirt:
            data["obs"][~seen] = np.nan
            for name in ("logit", "reward"):
                data[name][~real] = np.nan
            data["action"][~real] = 10**6
        policy = make_policy(IMPALAPolicy, model=net, learn=dict(**SGD, correction=correction))
        policy.learn_mode.forward(tree_map(torchify, data))
        after.append([p.detach().clone() for p in net.parameters()])
    assert not torch.equal(after[0][0], Linear().layer.weight)
    for clean, dirty in zip(*after):
        assert torch.equal(clean, dirty)


def built(manager, model, cls=IMPALAPolicy, **over):
    cfg = CfgDict(policy=policy_config(cls, type="impala", model=model, **over), env=dict(type="wanders"))
    return cls(cfg.policy, shapes=check_spaces(cfg, cls, manager))


@pytest.mark.parametrize("lstm", [None, "pytorch"])
@pytest.mark.parametrize("obs", OBSERVATIONS)
@pytest.mark.parametrize("action", ACTIONS)
def test_the_ratio_is_one_before_the_first_update_of_a_round(action, obs, lstm, seen):
    torch.manual_seed(0)
    both = [Wanders(OBSERVATIONS[obs], ACTIONS[action], lengths, b) for b, lengths in enumerate([[3, 14, 2], [40]])]
    manager = make_manager(*both)
    model = dict(encoder_hidden_size_list=[8, 8], lstm_type=lstm, share_encoder=lstm is None)
    policy = built(manager, model, learn_unroll_len=6)
    collector = SampleCollector(deep_merge_defaults(policy._cfg.collect, {"n_sample": 8}), manager, policy.collect_mode)
    store = Queue()
    for _ in range(3):
        collector.collect(store.push)
    (data,) = (minibatch(batch) for batch in store.batches(1, 24))
    for _ in range(2):
        policy.learn_mode.forward(data)
    (first, *_), (second, *_) = seen
    np.testing.assert_allclose(first.numpy(), 0.0, atol=2e-5)
    assert float(second.abs().max()) > 1e-4  # the weights did move


@pytest.mark.parametrize("lstm", [None, "gru"])
def test_rows_that_are_no_transition_are_the_slots_of_what_an_end_led_to(lstm, seen):
    """Of an env that resets in the step after an end: ratios are one, and every segment is of transitions."""
    manager = NextStep([Diary(0, [3, 5, 9]), Diary(1, [40])])
    policy = built(manager, dict(encoder_hidden_size_list=[8], lstm_type=lstm), learn_unroll_len=4)
    collector = SampleCollector(
        deep_merge_defaults(policy._cfg.collect, {"n_sample": 12}), manager, policy.collect_mode
    )
    batch = collector.collect()
    policy.learn_mode.forward(minibatch(batch))
    (log_rho, _, mask), = seen  # fmt: skip
    np.testing.assert_allclose(log_rho.numpy(), 0.0, atol=1e-5)
    assert 0 < (~mask).sum() < len(batch["mask"])


@pytest.mark.parametrize(("trunc", "wanted"), [(True, [2.125, 2.25, 2.5, 3.0]), (False, [1.75, 1.5, 1.0])])
def test_a_time_out_bootstraps_from_its_final_observation_and_a_death_does_not(trunc, wanted, seen):
    """Cases B06, B11. V(s) = s, gamma 1/2."""
    policy = make_policy(IMPALAPolicy, model=LinearV(), discount_factor=0.5, learn_unroll_len=8, learn=SGD)
    batch = make_collector(policy, Count(len(wanted), trunc=trunc), n_sample=1).collect()
    policy.learn_mode.forward(minibatch(batch))
    np.testing.assert_allclose(seen[0][1].vs[: len(wanted), 0], wanted, rtol=1e-6)


def test_a_forbidden_action_is_never_needed():
    class Masked(Wanders):
        def reset(self, **kwargs):
            return self.masked(super().reset(**kwargs)[0]), {}

        def step(self, action):
            obs, *rest = super().step(action)
            return self.masked(obs), *rest

        def masked(self, obs):
            return {**obs, "action_mask": np.array([self.t % 2, 1, 0], np.int8)}

    space = spaces.Dict({"x": spaces.Box(-1, 1, (3,), np.float32), "action_mask": spaces.MultiBinary(3)})
    manager = make_manager(Masked(space, spaces.Discrete(3), [3, 4], 0))
    policy = built(manager, dict(encoder_hidden_size_list=[8]), learn_unroll_len=5)
    collector = SampleCollector(deep_merge_defaults(policy._cfg.collect, {"n_sample": 6}), manager, policy.collect_mode)
    for _ in range(3):
        info = policy.learn_mode.forward(minibatch(collector.collect()))
        assert all(np.isfinite(float(value)) for value in info.values())


def test_a_native_env_gives_as_many_segments_as_asked_for():
    manager = VectorEnvManager(make_vec_fn({"type": "CartPole-v1"}), 4)
    policy = make_policy(IMPALAPolicy, 4, 2, learn_unroll_len=8)
    try:
        collector = SampleCollector(
            deep_merge_defaults(policy._cfg.collect, {"n_sample": 16}), manager, policy.collect_mode
        )
        found = collector.collect()
        assert len(found["mask"]) == 16 and 0 < (found["mask"][:, :-1] == 0).sum() < 16
        assert found["mask"].sum() <= collector.envstep
    finally:
        manager.close()


def test_rewards_are_clipped_as_told():
    reward = torch.tensor([-4.0, -0.5, 0.0, 0.5, 4.0], dtype=torch.float64)
    clipped = {name: clip(reward).tolist() for name, clip in REWARD_CLIPS.items()}
    assert clipped["none"] == reward.tolist() and clipped["abs_one"] == [-1, -0.5, 0, 0.5, 1]
    tanh = np.tanh([-4.0, -0.5, 0.0, 0.5, 4.0])
    np.testing.assert_allclose(clipped["soft_asymmetric"], 0.3 * np.minimum(tanh, 0) + 5 * np.maximum(tanh, 0))


def test_rmsprop_has_the_numbers_of_the_config_and_the_scheduled_rate():
    learn = dict(
        rmsprop=dict(alpha=0.9, eps=0.01, momentum=0.1), lr_schedule=dict(type="linear", decay=100), learning_rate=0.5
    )
    policy = make_policy(IMPALAPolicy, model=Linear(), learn=learn)
    policy.learn_mode.set_attribute("envstep", 50)
    info = policy.learn_mode.forward(tree_map(torchify, segments()))
    group = policy._optimizer.param_groups[0]
    assert [group[name] for name in ("alpha", "eps", "momentum")] == [0.9, 0.01, 0.1]
    assert info["cur_lr"] == pytest.approx(0.25)


def test_a_value_of_another_shape_is_a_named_error():
    class Wide(Linear):
        def forward(self, x):
            out = super().forward(x)
            return {**out, "value": out["value"][..., None]}

    policy = make_policy(IMPALAPolicy, model=Wide())
    with pytest.raises(ValueError, match=r"gives a `value` of shape \(5, 5, 1\); .* squeeze\(-1\) it"):
        policy.learn_mode.forward(tree_map(torchify, segments()))


# ---------------------------------------------------------------- runs
def config(**policy):
    learn = dict(batch_size=4, learner=dict(hook=dict(log_show_after_iter=5), hooks=[dict(type="break")]))
    section = dict(learn=learn, collect=dict(n_sample=6), eval=dict(evaluator=dict(eval_freq=20)), learn_unroll_len=5)
    main, create = tiny_config()
    for name in ("nstep", "learn", "collect", "eval", "other"):
        main["policy"].pop(name)
    main["policy"] = deep_merge_defaults(main["policy"], section, policy)
    create["policy"]["type"] = "impala"
    return deep_merge_defaults(single((main, create)), {"resume": OFTEN, "env": {"max_episode_steps": 12}})


@pytest.mark.parametrize("lstm", [None, "gru"])
@pytest.mark.usefixtures("in_tmp")
def test_a_run_broken_off_twice_ends_as_one_never_stopped(lstm):
    """Case B55; with replay, time limits that put columns out of step, and trajectories that wait."""
    replay = dict(replay_share=0.5, replay_buffer_size=10)
    made = partial(config, other=dict(replay_buffer=replay), model=dict(lstm_type=lstm))
    HOOK_REGISTRY.register("break", Break)
    serial_pipeline(made(), exp_name="straight", max_train_iter=40)
    broken_and_resumed(made(), [9, 25], max_train_iter=40)
    assert_equal_runs(Path("straight"), Path("broken"))


@pytest.mark.parametrize("bar", ["rho_bar", "c_bar", "pg_rho_bar"])
def test_a_negative_ratio_is_told_before_the_run(bar):
    assert full_config(config(learn={bar: float("inf")})).policy.learn[bar] == float("inf")
    with pytest.raises(ConfigError, match=rf"policy\.learn\.{bar}: got -1.*, wanted a number of at least 0"):
        full_config(config(learn={bar: -1}))


@pytest.mark.system
@pytest.mark.parametrize("mode", ["parallel", "async"])
@pytest.mark.usefixtures("in_tmp")
def test_one_config_runs_in_parallel_and_with_actors_that_do_not_wait(mode):
    HOOK_REGISTRY.register("break", Break)
    made = config(model=dict(lstm_type="gru"), collect=dict(collector=dict(num_workers=2)))
    serial_pipeline(made, exp_name="run", max_train_iter=12, mode=mode)
    lines = [line for line in metrics("run") if line["section"] == "learn"]
    assert result("run")["train_iter"] == 12 and all(np.isfinite(line["total_loss"]) for line in lines)
