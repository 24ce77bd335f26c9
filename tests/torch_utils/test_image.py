"""Encoders of images: the deep residual network of Espeholt 2018, and the shallow one out of `ConvEncoder`."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ding_like.torch_utils import ConvEncoder, ResidualEncoder, make_encoder

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def convolutions(module):
    return [m for m in module.modules() if isinstance(m, nn.Conv2d)]


def test_the_default_is_the_deep_network_of_the_paper():
    net = ResidualEncoder([4, 84, 84])
    convs = convolutions(net)
    assert [c.out_channels for c in convs] == [16] * 5 + [32] * 10
    assert {c.kernel_size for c in convs} == {(3, 3)} and {c.stride for c in convs} == {(1, 1)}
    pools = [m for m in net.modules() if isinstance(m, nn.MaxPool2d)]
    assert [(p.kernel_size, p.stride) for p in pools] == [(3, 2)] * 3
    assert net.fc[0].in_features == 32 * 11 * 11  # 84, 42, 21, 11
    assert net.output_size == 256


def test_the_shallow_network_of_the_paper_is_a_conv_encoder():
    net = ConvEncoder([4, 84, 84], [16, 32, 256])
    shapes = [(c.out_channels, c.kernel_size[0], c.stride[0]) for c in convolutions(net)]
    assert shapes == [(16, 8, 4), (32, 4, 2)]
    assert net.fc[0].in_features == 32 * 9 * 9 and net.output_size == 256


def spelled_out(net, x):
    """The network of the paper's figure on its parameters, one operation after the other."""
    params = iter(p.detach() for p in net.conv.parameters())

    def conv(y):
        return F.conv2d(y, next(params), next(params), padding=1)

    x = x.double() / 255
    for _ in range(3):
        x = F.max_pool2d(F.pad(conv(x), (1, 1, 1, 1), value=-torch.inf), 3, 2)
        for _ in range(2):
            x = x + conv(conv(x.relu()).relu())
    x = x.relu().flatten(1)
    return (x @ net.fc[0].weight.T + net.fc[0].bias).relu()


@pytest.mark.parametrize("shape", [[3, 17, 12], [4, 10, 10]], ids=str)
def test_it_computes_what_the_figure_shows(shape):
    torch.manual_seed(0)
    net = ResidualEncoder(shape, [4, 6, 6, 8]).double()
    x = torch.randint(0, 256, (5, *shape), dtype=torch.uint8)
    torch.testing.assert_close(net(x), spelled_out(net, x))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", ["conv", "residual"])
def test_time_is_folded_and_the_order_of_axes_makes_no_difference(kind, device):
    torch.manual_seed(0)
    first = make_encoder([3, 20, 15], [4, 6, 8], encoder_type=kind).to(device)
    last = make_encoder([20, 15, 3], [4, 6, 8], encoder_type=kind).to(device)
    last.load_state_dict(first.state_dict())
    x = torch.randint(0, 256, (3, 2, 3, 20, 15), dtype=torch.uint8, device=device)  # [T, B, C, H, W]
    out = first(x)
    assert out.shape == (3, 2, 8) and out.device.type == device
    torch.testing.assert_close(first(x[1]), out[1])
    torch.testing.assert_close(last(x.movedim(-3, -1)), out)


def test_gradients_agree_with_finite_differences_and_reach_every_parameter():
    torch.manual_seed(0)
    net = ResidualEncoder([1, 5, 6], [2, 3], activation="tanh").double()
    x = torch.rand(2, 1, 5, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(net, x)
    net(x).square().sum().backward()
    assert all(p.grad.abs().sum() > 0 for p in net.parameters())


def test_a_dict_hands_the_type_on_to_its_images():
    spec = {"v": 2, "pic": [1, 9, 9], "sub": {"pic": [1, 9, 9], "v": 1}, "only": {"v": 1}}
    net = make_encoder(spec, [4, 5], encoder_type="residual")
    assert sum(isinstance(m, ResidualEncoder) for m in net.modules()) == 2
    pic = torch.rand(3, 1, 9, 9)
    x = {"v": pic[:, 0, 0, :2], "pic": pic, "sub": {"pic": pic, "v": pic[:, 0, 0, :1]}, "only": {"v": pic[:, 0, 0, :1]}}
    assert net(x).shape == (3, 5)


def test_a_type_that_cannot_be_is_named():
    with pytest.raises(ValueError, match=r"encoder_type is 'resnet'; wanted one of \['conv', 'residual'\]"):
        make_encoder([1, 8, 8], [4, 8], encoder_type="resnet")
    with pytest.raises(ValueError, match=r"encoder_type is 'residual' and the observation .* has no image"):
        make_encoder({"v": 3}, [4, 8], encoder_type="residual")
    with pytest.raises(ValueError, match="at least one convolution"):
        make_encoder([1, 8, 8], [4], encoder_type="residual")
