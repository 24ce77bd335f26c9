"""The encoder of texts."""

import pytest
import torch

from ding_like.torch_utils import WordEncoder, make_encoder

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
SAID = {"@words": [5, 4]}
TEXTS = torch.tensor([[3, 1, 0, 0], [2, 1, 0, 0], [3, 1, 2, 4], [1, 0, 0, 0], [1, 3, 0, 0]])


@pytest.fixture
def net():
    torch.manual_seed(0)
    return WordEncoder(5).double()


def read_alone(net, text):
    """The LSTM's equations, gate by gate, over the words of one text."""
    h = c = torch.zeros(64, dtype=torch.float64)
    p = net.lstm
    for word in text[text != 0]:
        x = net.embedding.weight[word]
        i, f, g, o = (p.weight_ih_l0 @ x + p.bias_ih_l0 + p.weight_hh_l0 @ h + p.bias_hh_l0).chunk(4)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
    return h


def test_a_text_becomes_the_output_at_its_last_word(net):
    rows = TEXTS[torch.tensor([[0, 1, 0], [2, 3, 4]])]  # [T, B, L], one text twice
    out = net(rows)
    assert out.shape == (2, 3, 64)
    for t in range(2):
        for b in range(3):
            torch.testing.assert_close(out[t, b], read_alone(net, rows[t, b]))


def test_texts_and_their_orders_differ_and_what_follows_a_text_does_not_matter(net):
    out = net(TEXTS)
    assert torch.pdist(out).min() > 1e-3
    torch.testing.assert_close(net(TEXTS[[0, 1], :2]), out[:2])
    gaps = torch.tensor([[0, 2, 2, 0], [2, 0, 0, 4]])  # which no wrapper makes, but a sample of the space may have
    torch.testing.assert_close(net(gaps), net._read(gaps))
    torch.testing.assert_close(net(gaps[:1]), net(gaps)[:1])
    assert torch.isfinite(net(torch.zeros(2, 4, dtype=torch.int64))).all()


def test_gradients_are_those_of_reading_every_row(net):
    rows = TEXTS[[0, 0, 2, 1, 0, 4]]
    weight = torch.rand(6, 64, dtype=torch.float64)
    (net(rows) * weight).sum().backward()
    got = [p.grad.clone() for p in net.parameters()]
    net.zero_grad()
    (net._read(rows) * weight).sum().backward()
    for ours, p in zip(got, net.parameters()):
        torch.testing.assert_close(ours, p.grad)
    assert not got[0][0].any(), "the embedding of 'no word' is no parameter"


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("spec", [SAID, {"pic": [1, 8, 8], "say": SAID}, {"@tuple": [3, SAID]}], ids=str)
def test_every_kind_of_observation_may_hold_a_text(spec, device):
    torch.manual_seed(0)
    net = make_encoder(spec, [6, 7]).to(device)

    def seen(text):
        said = text.expand(2, 4).to(device)
        if "@tuple" in spec:
            return torch.zeros(2, 3, device=device), said
        return said if spec is SAID else {"pic": torch.zeros(2, 1, 8, 8, device=device), "say": said}

    out = [net(seen(text)) for text in TEXTS]
    assert out[0].shape == (2, net.output_size) == (2, 7)
    assert all((out[0] - other).abs().max() > 0 for other in out[1:])
