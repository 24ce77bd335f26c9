"""Policies train a recurrent network that takes no notice of `cut` on the states that its steps had."""

import numpy as np
import pytest
import torch

from ding_like.model.template.vac import VAC
from ding_like.policy.a2c import A2CPolicy
from ding_like.policy.ppo import PPOPolicy
from ding_like.worker import Rollout
from tests.helpers import make_collector, make_policy
from tests.policy.elman import Elman, elman_step
from tests.policy.test_recurrent_actor_critic import minibatch
from tests.policy.test_sequences import Episodes, assert_as_defined
from tests.worker.test_sample_collector import Diary


class DeafElman(Elman):
    def forward(self, inputs, inference=False):
        return super().forward({k: v for k, v in inputs.items() if k != "cut"}, inference)


class DeafVAC(VAC):
    def forward(self, x, mode="compute_actor_critic", inference=False):
        return super().forward({k: v for k, v in x.items() if k != "cut"}, mode, inference)


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("burnin", [1, 3])
def test_windows_begin_at_the_initial_state_where_their_episode_begins(burnin, stored):
    online, target = DeafElman(seed=1), DeafElman(seed=2)
    episodes = Episodes([(1, False), (9, True), (4, True), (11, False), (3, False)], online)
    how = dict(double=True, rescale=True, stored=stored)
    assert_as_defined(episodes, online, target, elman_step, burnin, 3, 2, **how)


@pytest.mark.parametrize("cls", [PPOPolicy, A2CPolicy])
@pytest.mark.parametrize("share", [True, False])
def test_the_outputs_along_segments_are_those_that_acting_had(cls, share):
    torch.manual_seed(0)
    net = DeafVAC(3, 3, encoder_hidden_size_list=[8], lstm_type="gru", share_encoder=share)
    policy = make_policy(cls, obs_shape=3, action_shape=3, model=net, learn_unroll_len=4)
    collector, store = make_collector(policy, Diary(0, [3, 5, 9]), Diary(1, [40]), n_sample=16), Rollout()
    collector.collect(store.push)
    (data,) = [minibatch(batch) for batch in store.batches(1, 16)]
    assert bool((data["cut"] == 0).any())
    with torch.no_grad():
        output, flat = policy._evaluated(data)
    np.testing.assert_allclose(output["value"].numpy(), flat["value"].numpy(), rtol=1e-5, atol=1e-5)
    assert np.isfinite(float(policy.learn_mode.forward(data)["total_loss"]))
