"""What every policy keeps, whatever its algorithm; the list of policies is in `contract.py`."""

import copy
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from ding_like.config import ConfigError
from ding_like.data import tree_cat, tree_index, tree_leaves, tree_map, tree_paths
from ding_like.entry.build import build, full_config
from ding_like.entry.checks import check_spaces
from ding_like.entry.resume import ResumePoints, load_run_state, read_point
from ding_like.model.wrapper.base_wrapper import innermost
from ding_like.policy import load_policy
from ding_like.torch_utils.checkpoint import save_checkpoint
from ding_like.utils import POLICY_REGISTRY
from ding_like.utils.seed import set_global_seed, set_rng_state
from ding_like.worker import Learner, SampleCollector
from tests.entry.resuming import differing
from tests.helpers import fingerprint, make_manager
from tests.policy.contract import (
    CASES,
    CONTRACT,
    KINDS,
    Toy,
    action_of,
    batches_of,
    components,
    config_of,
    spaces_of,
    state_of,
    train,
)

every = pytest.mark.parametrize(("name", "net"), CASES)
pytestmark = pytest.mark.usefixtures("in_tmp")


def test_every_policy_is_in_the_list():
    known = {POLICY_REGISTRY.get(name) for name in POLICY_REGISTRY.query() if name in POLICY_REGISTRY._builtin}
    assert known == {POLICY_REGISTRY.get(name) for name in CONTRACT}


# ---------------------------------------------------------------- spaces
def spaces():
    return [(name, net, *pair) for name, net in CASES for pair in spaces_of(name)]


@pytest.mark.parametrize(("name", "net", "obs", "action"), spaces())
def test_rounds_train_the_whole_network_on_every_kind_of_space(name, net, obs, action):
    over = {"random_collect_size": 0} if "random_collect_size" in CONTRACT[name].policy else {}
    with components(name, net, obs, action, **over) as parts:
        network = parts.policy.get_model()
        before = copy.deepcopy(network.state_dict())
        told = train(parts, 3)
    assert len(told) >= 3
    assert all(np.isfinite(float(step["total_loss"])) and float(step["grad_norm"]) > 0 for step in told)
    assert all(torch.isfinite(value).all() for value in network.state_dict().values())
    same = [key for key, p in network.named_parameters() if torch.equal(before[key], p)]
    assert [key for key in same if not key.startswith(CONTRACT[name].idle)] == []


@pytest.mark.parametrize("name", CONTRACT)
def test_action_spaces_that_it_does_not_claim_are_refused_by_name(name):
    claimed = CONTRACT[name].actions
    assert POLICY_REGISTRY.get(name).action_spaces == claimed
    for action in (action for action, kind in KINDS.items() if kind not in claimed):
        with pytest.raises(ConfigError, match=rf"policy '{name}' serves {claimed[0]}.* has {KINDS[action]}"):
            build(full_config(config_of(name)), 0, partial(Toy, "vector", action))


@pytest.mark.parametrize("name", [name for name, entry in CONTRACT.items() if "Box" in entry.actions and entry.modes])
def test_a_continuous_action_is_stored_in_the_policys_units_and_taken_in_the_envs(name):
    """Cases B38, B39: the policy's box is [-1, 1] in every dimension, the env's [-3, 5]; the env alone gets it cut."""
    with components(name, action="float64 box") as parts:
        manager, mode = parts.managers[0], parts.policy.collect_mode
        obs = manager.launch(0)
        output = mode.forward(obs, **mode.get_setting(0))
        stored = mode.process_transition(obs, output, manager.step(output["action"]))["action"]
    assert output["action"].shape == (2, 2, 2)
    np.testing.assert_allclose(output["action"].reshape(stored.shape), 1 + 4 * np.clip(stored, -1, 1), atol=1e-5)


# ---------------------------------------------------------------- states
@every
def test_a_state_that_is_loaded_goes_on_bit_for_bit(name, net):
    norm = dict(norm_obs=dict(use_norm=True))
    with components(name, net, **norm) as one, components(name, net, seed=1, **norm) as other:
        train(one, 3)
        assert fingerprint(one.policy.get_model().state_dict()) != fingerprint(other.policy.get_model().state_dict())
        batches = list(batches_of(one))
        other.policy.learn_mode.load_state_dict(one.policy.learn_mode.state_dict())
        found = []
        for parts in (one, other):
            torch.manual_seed(0)
            told = [parts.learner.train(tree_map(np.copy, batch), 9) for batch in batches]
            found.append(fingerprint([told, parts.policy.learn_mode.state_dict()]))
    assert len(batches) > 0
    assert found[0] == found[1]


@every
def test_an_evaluation_repeats_itself_and_changes_nothing(name, net):
    found = []
    for looks in (0, 2):
        taken = []
        with components(name, net, norm_obs=dict(use_norm=True)) as parts:
            train(parts, 2)
            for _ in range(looks):
                Toy.taken.clear()
                parts.evaluator.evaluate()
                taken.append(np.array(Toy.taken).tolist())
            train(parts)
            policy = parts.policy
            found.append(fingerprint([policy.learn_mode.state_dict(), policy.run_state_dict()]))
    assert len(taken[0]) >= 6 and taken[0] == taken[1]
    assert found[0] == found[1]


@every
def test_a_run_in_two_halves_is_the_whole_one(name, net):
    """Bit for bit: weights, optimisers, store, open episodes, noise; the point is a file and what reads it new."""
    with components(name, net) as whole:
        train(whole, 4)
        wanted = state_of(whole)
        with components(name, net) as first:
            train(first, 2)
            Path("run", "ckpt").mkdir(parents=True)
            point = ResumePoints(Path("run"), first.cfg.resume, partial(state_of, first))
            point.write()
        with components(name, net) as second:
            for p in second.policy.get_model().parameters():
                torch.nn.init.normal_(p)
            state = read_point(point.path)
            load_run_state(state, second, second.learner, second.loop)
            set_rng_state(state["rng"])
            train(second, 2)
            assert differing(state_of(second), wanted) == []


@every
def test_a_checkpoint_acts_as_the_policy_that_it_is_of(name, net):
    """From observations alone, through an episode's states, and again from the start."""
    with components(name, net) as parts:
        train(parts)
        policy, env = parts.policy, Toy("vector", action_of(name, net))
        save_checkpoint("a.pth.tar", name, policy.learn_mode.state_dict(), {"train_iter": 1}, policy.recipe())
        loaded, seen = load_policy("a.pth.tar"), [env.see() for _ in range(6)]
        acted = [[one.act(obs) for obs in seen] for one in (policy, loaded)]
        policy.reset()
        np.testing.assert_array_equal(*acted)
        np.testing.assert_array_equal(acted[0], [policy.act(obs) for obs in seen])
        assert all(env.action_space.contains(action) for action in acted[0])


# ---------------------------------------------------------------- masks
def tempting(module, args, output):
    """A forward hook: what is said of forbidden actions is the best of all."""
    seen = args[0].get("obs", args[0])
    for key in ("logit", "q_value"):
        if key in output:
            output[key] = output[key] + 1e3 * (seen["action_mask"] == 0)
    return output


@pytest.mark.parametrize(("name", "net"), [case for case in CASES if "Discrete" in CONTRACT[case[0]].actions])
def test_forbidden_actions_are_never_taken_and_what_is_said_of_them_changes_nothing(name, net):
    """The env refuses them; the last observation of a terminated episode forbids all."""
    found = []
    for tempted in (False, True):
        with components(name, net, obs="mask", action="discrete") as parts:
            for network in ("_model", "_target_model"):
                if tempted and hasattr(parts.policy, network):
                    innermost(getattr(parts.policy, network)).register_forward_hook(tempting)
            told = train(parts, 3)
            parts.evaluator.evaluate()
            assert all(np.isfinite(float(step["total_loss"])) for step in told)
            found.append(fingerprint(parts.policy.learn_mode.state_dict()))
    assert found[0] == found[1]


# ---------------------------------------------------------------- columns
def one_update(name, net, columns):
    """Of envs and noise of these columns, in this order: what is collected, what an update of all of it told, and the
    weights before and after. Items are put in the order of what they saw.
    """
    set_global_seed(0)
    manager = make_manager(*(Toy("vector", action_of(name, net), own=1 + column) for column in columns))
    cfg = full_config(config_of(name, net, learn=dict(optimizer="sgd", learning_rate=0.1)))
    cls = POLICY_REGISTRY.get(name)
    shapes = {**check_spaces(cfg, cls, manager), "env_num": len(columns), "columns": columns}
    policy = cls(cfg.policy, shapes=shapes)
    collector = SampleCollector(cfg.policy.collect, manager, policy.collect_mode)
    items = tree_cat([items for _ in range(3) if (items := collector.collect()) is not None])
    before = copy.deepcopy(policy.get_model().state_dict())
    told = Learner(cfg.policy.learn.learner, policy.learn_mode).train(items, collector.envstep)
    order = items["obs"].reshape(len(items["obs"]), -1).sum(1).argsort()
    told = {key: x[order] if np.ndim(x) else x for key, x in told.items()}
    return tree_index(items, order), told, before, policy.get_model().state_dict()


@pytest.mark.parametrize(("name", "net"), [case for case in CASES if CONTRACT[case[0]].modes])
def test_columns_in_another_order_give_the_same_samples_and_the_same_update(name, net, monkeypatch):
    """Up to the order of sums. What chance an update has is the same for every sample here."""
    monkeypatch.setattr(torch, "randn_like", lambda x: torch.linspace(-1, 1, x.shape[-1]).expand_as(x))
    monkeypatch.setattr(torch, "rand", lambda *shape, **_: torch.linspace(0.1, 0.9, shape[-1]).expand(shape))
    one, other = (one_update(name, net, columns) for columns in ([0, 1, 2, 3], [2, 0, 3, 1]))
    assert len(tree_leaves(one[0])[0]) >= 8
    assert not all(torch.equal(one[2][key], one[3][key]) for key in one[2])
    for a, b in zip(one, other, strict=True):
        assert [path for path, _ in tree_paths(a)] == [path for path, _ in tree_paths(b)]
        for (path, x), (_, y) in zip(tree_paths(a), tree_paths(b)):
            np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5, err_msg=path)
