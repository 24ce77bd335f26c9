"""EnvPool's CartPole: every stored transition is one that the physics allow, and no row of a reset is among them."""

import numpy as np
import pytest

from ding_like.config import CfgDict, deep_merge_defaults
from ding_like.entry import serial_pipeline
from ding_like.envs.env_manager.vector_env_manager import PoolEnvManager
from ding_like.envs.vector import eval_env_fns
from ding_like.worker import Replay, SampleCollector
from tests.helpers import Constant, make_policy, result, tiny_config

pytest.importorskip("envpool")
pytestmark = pytest.mark.filterwarnings("ignore:.*precision lowered")
COLUMNS = 5


def physics(obs, action):
    """Barto 1983, as Gymnasium's CartPole: Euler steps of 0.02 s, force 10 N."""
    x, v, angle, spin = obs.astype(np.float64).T
    force = np.where(action == 1, 10.0, -10.0)
    cos, sin = np.cos(angle), np.sin(angle)
    pull = (force + 0.05 * spin**2 * sin) / 1.1
    twist = (9.8 * sin - cos * pull) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
    push = pull - 0.05 * twist * cos / 1.1
    return np.stack([x + 0.02 * v, v + 0.02 * push, angle + 0.02 * spin, spin + 0.02 * twist], 1)


def pool(seed=0):
    manager = PoolEnvManager.from_config({"type": "CartPole-v1"}, None, COLUMNS, "collect")
    manager.launch(seed)
    return manager


def test_every_stored_step_obeys_the_physics_and_resets_are_not_steps():
    policy = make_policy(obs_shape=4, model=Constant(0.0, 0.0), other=dict(eps=dict(start=1.0, end=1.0)))
    cfg = deep_merge_defaults(policy._cfg.collect, {"n_sample": 20 * COLUMNS})
    manager = pool()
    collector, store = SampleCollector(cfg, manager, policy.collect_mode), Replay(CfgDict(replay_buffer_size=10_000))
    for _ in range(10):
        collector.collect(store.push)
    ring = store.ring
    address = ring.address(np.arange(ring.slots))
    idle = ring.idle(address)
    items = ring.gather(np.delete(address, idle))
    assert len(idle) > 20 and collector.envstep == len(items["reward"]) == store.count
    np.testing.assert_allclose(items["next_obs"], physics(items["obs"], items["action"]), atol=1e-5)
    fell = (np.abs(items["next_obs"][:, 0]) > 2.4) | (np.abs(items["next_obs"][:, 2]) > 12 * np.pi / 180)
    np.testing.assert_array_equal(items["discount"] == 0, fell)
    total = sum(episode["length"] for episode in collector.episodes)
    assert (items["reward"] == 1).all() and total <= collector.envstep
    manager.close()


def test_a_seed_repeats_a_pool():
    def play(seed):
        manager = pool(seed)
        seen = [manager.step(np.ones(COLUMNS, np.int64)).obs for _ in range(30)]
        manager.close()
        return np.stack(seen)

    np.testing.assert_array_equal(play(0), play(0))
    assert not np.array_equal(play(0), play(1))


def test_single_columns_evaluate_from_their_seed():
    (make,) = eval_env_fns({"type": "CartPole-v1"}, 1, None, "envpool")
    env = make()
    first, again = env.reset(seed=5)[0], env.reset(seed=5)[0]
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, env.reset(seed=6)[0])
    env.close()


@pytest.mark.usefixtures("in_tmp")
def test_a_run_with_a_pool_trains_and_evaluates():
    main, create = tiny_config()
    serial_pipeline((main, {**create, "env_manager": dict(type="env_pool")}), max_train_iter=10)
    assert result("run")["train_iter"] == 10


def test_an_env_that_the_pool_lacks_is_named():
    with pytest.raises(ValueError, match="EnvPool has no env 'CartPoleX-v1'"):
        PoolEnvManager.from_config({"type": "CartPoleX-v1"}, None, 2, "collect")
