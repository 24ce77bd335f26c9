"""What the tests of recurrent models share: observations, an episode step by step, comparisons, float64."""

import torch

from ding_like.data import tree_index, tree_leaves, tree_map

KINDS = ("normal", "hpc", "pytorch", "gru")
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5}
SPECS = {
    "vector": (4, lambda lead: torch.rand(*lead, 4)),
    "image": ([3, 12, 12], lambda lead: torch.randint(255, (*lead, 3, 12, 12)).to(torch.uint8)),
    "dict": (
        {"pos": 4, "cam": [8, 8, 1], "kind": {"@one_hot": [5]}, "say": {"@words": [6, 4]}},
        lambda lead: {
            "pos": torch.rand(*lead, 4),
            "cam": torch.rand(*lead, 8, 8, 1),
            "kind": torch.randint(5, lead),
            "say": torch.randint(6, (*lead, 4)),
        },
    ),
    "tuple": (
        {"@tuple": [3, {"@one_hot": [2, 3]}]},
        lambda lead: (torch.rand(*lead, 3), torch.randint(2, (*lead, 2))),
    ),
}


def in_type(net, dtype, monkeypatch):
    """The network in that type. Encoders and normalisers cast to float32; for float64 that cast gives float64."""
    if dtype == torch.float64:
        monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    return net.to(dtype)


def observations(net, spec, lead):
    """Random observations, floats in the type of the network."""
    dtype = next(net.parameters()).dtype
    return tree_map(lambda x: x.to(dtype) if x.is_floating_point() else x, SPECS[spec][1](lead))


def at(tree, t):
    return tree_index(tree, t)


def random_state(net, batch, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return tree_map(lambda x: torch.rand(x.shape, generator=generator).to(x.dtype), net.initial_state(batch))


def random_cut(steps, batch, share=0.3, seed=2):
    return (torch.rand(steps, batch, generator=torch.Generator().manual_seed(seed)) >= share).float()


def stepwise(net, data, **kwargs):
    """An unroll as single steps: the outputs by key, stacked, and the states before each step and after the last."""
    data = dict(data)
    cut, state = data.pop("cut", None), data.pop("prev_state")
    steps, batch = tree_leaves(data["obs"])[0].shape[:2]
    outputs, states = [], [net.initial_state(batch) if state is None else state]
    for t in range(steps):
        out = net({**at(data, t), "prev_state": states[-1]}, inference=True, **kwargs)
        state = out.pop("next_state")
        if cut is not None:
            goes_on = cut[t].bool()[:, None, None]
            state = tree_map(lambda x, on=goes_on: torch.where(on, x, torch.zeros_like(x)), state)
        outputs.append(out)
        states.append(state)
    return tree_map(lambda *xs: torch.stack(xs), *outputs), states


def assert_close(got, wanted, tolerance):
    """Trees, or lists of such."""
    got, wanted = (tuple(tree) if isinstance(tree, list) else tree for tree in (got, wanted))
    for a, b in zip(tree_leaves(got), tree_leaves(wanted), strict=True):
        assert a.shape == b.shape
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def assert_unroll_is_stepwise(net, data, tolerance, **kwargs):
    """Outputs, next state and the saved states at every place, against single steps."""
    steps = tree_leaves(data["obs"])[0].shape[0]
    places = [steps, 0, *range(1, steps)]
    with torch.no_grad():
        wanted, states = stepwise(net, data, **kwargs)
        got = net(data, saved_hidden_state_timesteps=places, **kwargs)
    assert got["saved_state"] is got["saved_hidden_state"]
    for k, state in zip(places, got["saved_hidden_state"], strict=True):
        assert_close(state, states[k], tolerance)
    assert_close(got["next_state"], states[-1], tolerance)
    for key, value in wanted.items():
        assert_close(got[key], value, tolerance)
