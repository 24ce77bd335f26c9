"""Encoders: what enters the layers for every kind of observation."""

import warnings

import numpy as np
import pytest
import torch

from ding_like.model.template.q_learning import DQN
from ding_like.torch_utils import ConvEncoder, DictEncoder, VectorEncoder, make_encoder

IMAGE = [1, 8, 8]


def seen(module, x):
    """What `module` is given while the encoder runs."""
    inputs = []
    handle = module.register_forward_pre_hook(lambda _, args: inputs.append(args[0].detach().clone()))
    return inputs, handle


def conv_input(encoder, x):
    inputs, handle = seen(encoder.conv, x)
    encoder(x)
    handle.remove()
    return inputs[0]


def mlp_input(encoder, x, mlp="main"):
    inputs, handle = seen(getattr(encoder, mlp), x)
    encoder(x)
    handle.remove()
    return inputs[0]


def test_uint8_image_is_divided_by_255_once():
    """Case B53: 255 enters the first convolution as 1.0."""
    x = torch.full((2, *IMAGE), 255, dtype=torch.uint8)
    x[0, 0, 0, 0] = 51
    got = conv_input(make_encoder(IMAGE, [4, 8]), x)
    assert got[0, 0, 0, 0] == np.float32(51 / 255) and (got.flatten()[1:] == 1.0).all()


def test_float_image_in_the_unit_range_is_unchanged_and_silent():
    """Case B53."""
    x = torch.rand(2, *IMAGE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.testing.assert_close(conv_input(make_encoder(IMAGE, [4, 8]), x), x, rtol=0, atol=0)


def test_float_image_above_one_is_unchanged_with_a_warning():
    """Case B53."""
    x = torch.full((1, *IMAGE), 255.0)
    with pytest.warns(UserWarning, match="a float image observation reaches 255; only uint8"):
        got = conv_input(make_encoder(IMAGE, [4, 8]), x)
    assert (got == 255).all()


def test_uint8_vector_is_unscaled_with_one_warning():
    """Case B53: a uint8 Box that is no image."""
    encoder = make_encoder(128, [8])
    x = torch.full((2, 128), 255, dtype=torch.uint8)
    with pytest.warns(UserWarning, match=r"a uint8 observation of shape \[128\] is no image") as caught:
        assert (mlp_input(encoder, x) == 255.0).all()
        encoder(x)
    assert len(caught) == 1


def test_boolean_image_becomes_zeros_and_ones():
    x = torch.zeros(2, 4, 10, 10, dtype=torch.bool)
    x[0, 1, 2, 3] = True
    got = conv_input(make_encoder([4, 10, 10], [4, 8]), x)
    assert got.sum() == 1 and got[0, 1, 2, 3] == 1


def test_channels_are_the_smaller_outer_axis():
    x = torch.rand(2, 10, 10, 4)
    last = make_encoder([10, 10, 4], [4, 8])
    torch.testing.assert_close(conv_input(last, x), x.permute(0, 3, 1, 2))
    first = make_encoder([4, 10, 10], [4, 8])
    first.load_state_dict(last.state_dict())
    torch.testing.assert_close(first(x.permute(0, 3, 1, 2)), last(x))
    assert ConvEncoder([4, 10, 10], [4, 8], channels_last=True).conv[0].in_channels == 10


def test_large_images_get_the_kernels_of_mnih_2015():
    encoder = make_encoder([4, 84, 84], [32, 64, 64, 512])
    convs = [m for m in encoder.conv if isinstance(m, torch.nn.Conv2d)]
    assert [(c.kernel_size[0], c.stride[0]) for c in convs] == [(8, 4), (4, 2), (3, 1)]
    assert encoder.fc[0].in_features == 7 * 7 * 64 and encoder.output_size == 512


def test_image_too_small_or_without_widths_is_named():
    with pytest.raises(ValueError, match=r"an image of \[1, 4, 4\] is too small for 2 convolutions"):
        make_encoder([1, 4, 4], [4, 4, 8])
    with pytest.raises(ValueError, match="at least one convolution"):
        make_encoder([1, 8, 8], [4])
    with pytest.raises(ValueError, match="encoder_hidden_size_list is empty"):
        make_encoder(4, [])


@pytest.mark.parametrize(
    ("spec", "leaf"),
    [
        (4, torch.rand(3, 2, 4)),
        ([3, 4], torch.rand(3, 2, 3, 4)),
        (IMAGE, torch.rand(3, 2, *IMAGE)),
        ({"@one_hot": [5]}, torch.randint(5, (3, 2))),
        ({"@one_hot": [2, 3]}, torch.randint(2, (3, 2, 2))),
        ({"@tuple": [2, {"@one_hot": [3]}]}, (torch.rand(3, 2, 2), torch.randint(3, (3, 2)))),
        ({"pic": IMAGE, "v": 2, "in": {"n": {"@one_hot": [4]}}}, None),
    ],
    ids=str,
)
def test_leading_axes_are_kept(spec, leaf):
    if leaf is None:
        leaf = {"pic": torch.rand(3, 2, *IMAGE), "v": torch.rand(3, 2, 2), "in": {"n": torch.randint(4, (3, 2))}}
    torch.manual_seed(0)
    encoder = make_encoder(spec, [6, 5])
    out = encoder(leaf)  # [T, B, H]
    assert out.shape == (3, 2, 5)

    def part(x):
        if isinstance(x, dict):
            return {k: part(v) for k, v in x.items()}
        return tuple(part(v) for v in x) if isinstance(x, tuple) else x[1]

    torch.testing.assert_close(encoder(part(leaf)), out[1])


def test_discrete_and_multi_discrete_are_one_hot():
    one = make_encoder({"@one_hot": [4]}, [8])
    assert mlp_input(one, torch.tensor([2, 0])).tolist() == [[0, 0, 1, 0], [1, 0, 0, 0]]
    many = make_encoder({"@one_hot": [2, 3]}, [8])
    assert mlp_input(many, torch.tensor([[1, 2], [0, 0]])).tolist() == [[0, 1, 0, 0, 1], [1, 0, 1, 0, 0]]


@pytest.mark.parametrize("dtype", [torch.int8, torch.float64, torch.bool])
def test_multi_binary_and_other_numbers_become_float32(dtype):
    got = mlp_input(make_encoder(3, [8]), torch.tensor([[1, 0, 1]]).to(dtype))
    assert got.dtype == torch.float32 and got.tolist() == [[1, 0, 1]]


def test_matrices_are_flattened():
    x = torch.arange(12.0).reshape(2, 2, 3)
    assert mlp_input(make_encoder([2, 3], [8]), x).tolist() == x.reshape(2, 6).tolist()


def test_dict_joins_vectors_in_one_mlp_and_images_in_their_own():
    encoder = make_encoder({"b": 2, "pic": IMAGE, "a": {"@one_hot": [2]}}, [6, 5])
    x = {"a": torch.tensor([1]), "b": torch.tensor([[7.0, 8.0]]), "pic": torch.rand(1, *IMAGE)}
    assert mlp_input(encoder, x, "mlp").tolist() == [[7, 8, 0, 1]]
    assert isinstance(encoder, DictEncoder) and encoder.join[0].in_features == 5 + 5


def test_every_part_of_a_nested_observation_matters():
    net = DQN({"a": {"b": 2, "c": {"@tuple": [1, {"@one_hot": [3]}]}}, "pic": IMAGE}, 3, [6, 5])
    x = {
        "a": {"b": torch.rand(1, 2), "c": (torch.rand(1, 1), torch.tensor([0]))},
        "pic": torch.rand(1, *IMAGE),
    }
    leaves = [x["a"]["b"], x["a"]["c"][0], x["pic"]]
    for leaf in leaves:
        leaf.requires_grad_(True)
    net(x)["logit"].square().sum().backward()
    assert all(leaf.grad.abs().sum() > 0 for leaf in leaves)
    other = {**x, "a": {**x["a"], "c": (x["a"]["c"][0], torch.tensor([2]))}}
    assert (net(x)["logit"] != net(other)["logit"]).any()


@pytest.mark.parametrize("key", ["type", "items", "a.b", "train", ""])
def test_any_key_may_name_a_part_of_a_dict(key):
    encoder = make_encoder({key: 2, "pic": IMAGE, "sub": {key: 1}}, [6, 5])
    x = {key: torch.rand(1, 2), "pic": torch.rand(1, *IMAGE), "sub": {key: torch.rand(1, 1)}}
    assert encoder(x).shape == (1, 5)


def test_vector_without_hidden_layers_still_has_an_output():
    assert isinstance(make_encoder(4, [8]), VectorEncoder) and make_encoder(4, [8]).output_size == 8


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(
    "spec", [3, [2, 2], [1, 8, 8], {"@one_hot": [4]}, {"a": 3, "b": {"@one_hot": [2, 3]}, "c": [8, 8, 1]}]
)
def test_features_have_the_type_of_the_networks_parameters(spec, dtype):
    encoder = make_encoder(spec, [4, 5]).to(dtype)

    def example(spec, kind):
        if isinstance(spec, dict) and "@one_hot" in spec:
            return torch.ones(2, len(spec["@one_hot"]), dtype=torch.int64).squeeze(-1)
        if isinstance(spec, dict):
            return {key: example(sub, kind) for key, sub in spec.items()}
        return torch.ones(2, *(spec if isinstance(spec, list) else [spec])).to(kind)

    for kind in (torch.float32, torch.float64, torch.uint8):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert encoder(example(spec, kind)).dtype == dtype
    assert all("like" not in name for name in encoder.state_dict())
