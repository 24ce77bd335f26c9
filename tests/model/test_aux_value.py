"""The second value of an actor-critic network, of its policy's features."""

import numpy as np
import pytest
import torch

from ding_like.model import VAC

SIZES = dict(encoder_hidden_size_list=[8], share_encoder=False, aux_value_head=True)


def network(**over):
    torch.manual_seed(0)
    return VAC(3, 2, **SIZES, **over)


@pytest.mark.parametrize("lstm", [None, "gru"])
def test_it_trains_the_policy_s_features_and_not_those_of_the_value(lstm):
    net = network(lstm_type=lstm)
    x = torch.randn(5, 4, 3)
    output = net(x if lstm is None else {"obs": x})
    assert output["aux_value"].shape == output["value"].shape == (5, 4)
    output["aux_value"].sum().backward()
    moved = {name.split(".")[0] for name, p in net.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0}
    assert moved == {"actor_encoder", "aux_head", *(() if lstm is None else ("actor_memory",))}


@pytest.mark.parametrize("lstm", [None, "gru"])
def test_acting_has_no_use_of_it(lstm):
    net = network(lstm_type=lstm)
    x = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    assert net.numpy_ready()
    fast = net.numpy_forward(x if lstm is None else {"obs": x, "prev_state": net.numpy_initial_state(4)})
    slow = net(torch.as_tensor(x)) if lstm is None else net({"obs": torch.as_tensor(x)}, inference=True)
    for name in ("logit", "value"):
        np.testing.assert_allclose(fast[name], slow[name].detach().numpy(), atol=1e-6)
    assert "aux_value" not in fast
    for mode in ("compute_actor", "compute_critic"):
        assert "aux_value" not in net(torch.as_tensor(x) if lstm is None else {"obs": torch.as_tensor(x)[None]}, mode)


def test_the_other_weights_are_those_of_a_network_without_it():
    torch.manual_seed(0)
    plain = VAC(3, 2, **{**SIZES, "aux_value_head": False}, orthogonal_init=False)
    torch.manual_seed(0)
    other = VAC(3, 2, **SIZES, orthogonal_init=False)
    assert all(torch.equal(p, other.state_dict()[name]) for name, p in plain.state_dict().items())


def test_a_shared_encoder_is_refused():
    with pytest.raises(ValueError, match="wanted share_encoder=False"):
        VAC(3, 2, aux_value_head=True)
