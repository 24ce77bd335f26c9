"""Recurrent networks: one step after the other is the reference, in float64, for everything else."""

import copy
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from ding_like.torch_utils import get_lstm, sequence_mask
from ding_like.torch_utils.network import norm_lstm
from ding_like.torch_utils.network.fused_rnn import Stretches, plan_rounds

KINDS = ("normal", "hpc", "pytorch", "gru")
WIDTH, H = 3, 5
every_kind = pytest.mark.parametrize("kind", KINDS)
every_depth = pytest.mark.parametrize("layers", [1, 2])


@pytest.fixture(autouse=True)
def hpc_is_itself_in_short_windows_too(monkeypatch):
    monkeypatch.setattr(norm_lstm, "FEW", 1)


def network_of(kind, layers=1, dtype=torch.float64, seed=0, width=WIDTH, size=H, **kwargs):
    torch.manual_seed(seed)
    network = get_lstm(kind, width, size, layers, **kwargs).to(dtype)
    with torch.no_grad():  # scales of one would hide a wrong place for them
        for name, parameter in network.named_parameters():
            if "scale" in name:
                parameter += 0.3 * torch.randn_like(parameter)
    return network


def case_of(network, steps, batch, share, seed=0):
    """x, state (both want gradients) and a cut with about `share` of zeros."""
    torch.manual_seed(seed)
    dtype = next(network.parameters()).dtype
    x = torch.randn(steps, batch, network.input_size, dtype=dtype, requires_grad=True)
    state = {k: (0.5 * torch.randn_like(v)).requires_grad_() for k, v in network.initial_state(batch).items()}
    return x, state, (torch.rand(steps, batch) >= share).to(dtype)


def stepwise(network, x, state, cut):
    """Outputs, the states before each step and after the last, and the states before each reset."""
    outputs, before, reached = [], [state], []
    for t in range(len(x)):
        output, state = network.step(x[t], state)
        outputs.append(output)
        reached.append(state)
        goes_on = torch.as_tensor(cut[t])[:, None, None] == 1
        state = {k: torch.where(goes_on, v, torch.zeros_like(v)) for k, v in state.items()}
        before.append(state)
    return torch.stack(outputs), before, reached


def at_cuts(reached, cut):
    """States `[E, ...]` before each reset, in the order of flat rows."""
    where = [(t, b) for t in range(len(cut)) for b in range(len(cut[t])) if cut[t][b] == 0]
    return {k: torch.stack([reached[t][k][b] for t, b in where]) if where else reached[0][k][:0] for k in reached[0]}


def assert_close(ours, wanted, tolerance):
    assert ours.shape == wanted.shape
    assert (ours - wanted).abs().max() <= tolerance if ours.numel() else True


def weighted(tensors, seed=1):
    """A scalar that every number of the tensors reaches by a weight of its own."""
    torch.manual_seed(seed)
    return sum((t * torch.randn(t.shape, dtype=t.dtype)).sum() for t in tensors)


# ------------------------------------------------------------------ unroll against steps
@every_kind
@every_depth
@pytest.mark.parametrize("share", [0, 0.01, 0.1, 0.6, 1])
def test_an_unroll_equals_steps_in_values_states_and_gradients(kind, layers, share):
    network = network_of(kind, layers)
    x, state, cut = case_of(network, 23, 6, share)
    saved = [0, 23, 9, 9, 4]
    outputs, before, reached = stepwise(network, x, state, cut)
    trace = network.trace(x, state, cut, saved)
    ends = at_cuts(reached, cut)
    assert_close(trace.output, outputs, 1e-9)
    np.testing.assert_array_equal(trace.end_rows, np.flatnonzero(cut.numpy() == 0))
    for k in state:
        assert_close(trace.state[k], before[-1][k], 1e-9)
        assert_close(trace.ends[k], ends[k], 1e-9)
        for count, kept in zip(saved, trace.saved, strict=True):
            assert_close(kept[k], before[count][k], 1e-9)
    inputs = [x, *state.values(), *network.parameters()]
    wanted = [outputs, *before[-1].values(), *before[9].values(), *ends.values()]
    got = [trace.output, *trace.state.values(), *trace.saved[2].values(), *trace.ends.values()]
    for one, other in zip(
        torch.autograd.grad(weighted(got), inputs), torch.autograd.grad(weighted(wanted), inputs), strict=True
    ):
        assert_close(one, other, 1e-9 * max(1, other.abs().max()))


@every_kind
@pytest.mark.parametrize(("steps", "tolerance"), [(20, 1e-5), (80, 5e-4)])
def test_an_unroll_equals_steps_in_float32(kind, steps, tolerance):
    network = network_of(kind, dtype=torch.float32)
    x, state, cut = case_of(network, steps, 4, 0.05)
    outputs, before, _ = stepwise(network, x, state, cut)
    output, last = network.unroll(x, state, cut)
    assert_close(output, outputs, tolerance)
    for k in state:
        assert_close(last[k], before[-1][k], tolerance)


@every_kind
@pytest.mark.parametrize("rows", [[0], [-1], [0, 1, 2, 3], [3, 4, 5, 6, 7], list(range(8)), []])
@pytest.mark.parametrize("columns", [slice(None), slice(0, 1)])
def test_cuts_at_the_edges_and_in_a_row(kind, rows, columns):
    network = network_of(kind)
    x, state, cut = case_of(network, 8, 3, 0)
    cut[rows, columns] = 0
    outputs, before, _ = stepwise(network, x, state, cut)
    output, last = network.unroll(x, state, cut)
    assert_close(output, outputs, 1e-12)
    for k in state:
        assert_close(last[k], before[-1][k], 1e-12)
    if -1 in rows:
        assert all((leaf[columns] == 0).all() for leaf in last.values())


@every_kind
@every_depth
@pytest.mark.parametrize(("steps", "batch"), [(1, 1), (1, 4), (6, 1)])
def test_one_step_and_one_column(kind, layers, steps, batch):
    network = network_of(kind, layers)
    x, state, cut = case_of(network, steps, batch, 0.5, seed=3)
    outputs, before, _ = stepwise(network, x, state, cut)
    output, last = network.unroll(x, state, cut)
    assert_close(output, outputs, 1e-12)
    assert all(leaf.shape == (batch, layers, H) for leaf in last.values())
    for k in state:
        assert_close(last[k], before[-1][k], 1e-12)


@every_kind
@settings(max_examples=15, deadline=None)
@given(data=st.data(), steps=st.integers(1, 18), batch=st.integers(1, 4))
def test_a_window_equals_its_halves(kind, data, steps, batch):
    network = network_of(kind)
    x, state, _ = case_of(network, steps, batch, 0)
    cut = np.array(data.draw(st.lists(st.booleans(), min_size=steps * batch, max_size=steps * batch)))
    cut = cut.reshape(steps, batch)
    half = data.draw(st.integers(0, steps))
    with torch.no_grad():
        whole, last = network.unroll(x, state, cut)
        outputs = []
        for part in (slice(0, half), slice(half, steps)):
            if part.start < part.stop:
                output, state = network.unroll(x[part], state, cut[part])
                outputs.append(output)
    assert_close(torch.cat(outputs), whole, 1e-12)
    for k in state:
        assert_close(state[k], last[k], 1e-12)


@every_kind
@pytest.mark.parametrize("steps", [3, 9])
def test_gradcheck(kind, steps):
    network = network_of(kind, width=2, size=2)
    x, state, cut = case_of(network, steps, 2, 0.25, seed=5)
    names = list(state)

    def call(x, *rest):
        leaves, parameters = rest[: len(names)], rest[len(names) :]
        values = dict(zip(dict(network.named_parameters()), parameters))
        output, last = torch.func.functional_call(network, values, (x, dict(zip(names, leaves)), cut))
        return output, *last.values()

    assert torch.autograd.gradcheck(call, (x, *state.values(), *network.parameters()))


@every_kind
@pytest.mark.parametrize("share", [0.1, 0.7])
def test_no_gradient_crosses_a_cut(kind, share):
    """An output depends on the steps since its column's last cut, and on the first state only before any."""
    network = network_of(kind)
    x, state, cut = case_of(network, 12, 4, share, seed=2)
    output, _ = network.unroll(x, state, cut)
    for t in range(12):
        grads = torch.autograd.grad(output[t].sum(), [x, *state.values()], retain_graph=True)
        for b in range(4):
            ended = np.flatnonzero(cut[:t, b].numpy() == 0)
            start = ended[-1] + 1 if len(ended) else 0
            reach = torch.zeros(12, dtype=torch.bool)
            reach[start : t + 1] = True
            assert ((grads[0][:, b] != 0).any(1) == reach).all()
            assert all((leaf[b] != 0).any() == (start == 0) for leaf in grads[1:])


@every_kind
@pytest.mark.parametrize("cuts", [1, 20])
def test_nan_before_a_cut_does_not_leak(kind, cuts):
    """Neither into values behind it, nor other columns, nor the gradients of what is behind it."""
    network = network_of(kind)
    x, state, cut = case_of(network, 12, 6, 0)
    cut[4, 0] = 0
    if cuts > 1:  # stretches become rows
        cut[torch.arange(11), torch.arange(11) % 5 + 1] = 0
    wanted = network.unroll(x, state, cut)[0]
    with torch.no_grad():
        x[1:5, 0] = torch.nan
    trace = network.trace(x, state, cut, [5])
    good = torch.ones(12, 6, dtype=torch.bool)
    good[1:5, 0] = False
    assert trace.output[1:5, 0].isnan().all()
    assert_close(trace.output[good], wanted[good], 1e-12)
    assert all((leaf[0] == 0).all() for leaf in trace.saved[0].values())
    loss = torch.where(good[..., None], trace.output, 0.0).sum() + sum(leaf.sum() for leaf in trace.state.values())
    grad = torch.autograd.grad(loss, x)[0]
    assert grad[5:, 0].isfinite().all() and grad[:, 1:].isfinite().all()


@every_kind
def test_inputs_may_lie_in_memory_in_any_order(kind):
    network = network_of(kind)
    plain, _, cut = case_of(network, 12, 5, 0.2)
    wanted = network.unroll(plain, None, cut)[0]
    grad = torch.autograd.grad(weighted([wanted]), plain)[0]
    x = plain.detach().transpose(0, 1).contiguous().requires_grad_()  # [B, T, I]
    output = network.unroll(x.transpose(0, 1), None, cut)[0]
    assert_close(output, wanted, 1e-12)
    assert_close(torch.autograd.grad(weighted([output]), x)[0].transpose(0, 1), grad, 1e-12)


# ------------------------------------------------------------------ hpc, normal, torch
@every_depth
@pytest.mark.parametrize("norm_type", ["LN", None])
@pytest.mark.parametrize(("steps", "setting"), [(2, {}), (30, {}), (30, {"SPAN": 160}), (9, {"FEW": 10})])
def test_hpc_equals_normal_in_values_and_gradients(layers, norm_type, steps, setting, monkeypatch):
    """Also in blocks of two steps, and in windows that are too short to gain from it."""
    for name, value in setting.items():
        monkeypatch.setattr(norm_lstm, name, value)
    normal = network_of("normal", layers, norm_type=norm_type)
    hpc = get_lstm("hpc", WIDTH, H, layers, norm_type=norm_type).double()
    hpc.load_state_dict(normal.state_dict())
    x, state, cut = case_of(normal, steps, 4, 0.1)
    results = []
    for network in (normal, hpc):
        trace = network.trace(x, state, cut)
        tensors = [trace.output, *trace.state.values(), *trace.ends.values()]
        inputs = [x, *state.values(), *network.parameters()]
        results.append([*tensors, *torch.autograd.grad(weighted(tensors), inputs)])
    for one, other in zip(*results, strict=True):
        assert_close(one, other, 1e-9 * max(1, other.abs().max()))


def test_hpc_goes_backward_where_only_the_first_state_or_the_last_cell_state_matters():
    network = network_of("hpc")
    for parameter in network.parameters():
        parameter.requires_grad_(False)
    x, state, _ = case_of(network, 7, 2, 0)
    ours = torch.autograd.grad(network.unroll(x.detach(), state)[1]["c"].sum(), list(state.values()))
    wanted = torch.autograd.grad(
        stepwise(network, x.detach(), state, np.ones((7, 2)))[1][-1]["c"].sum(), list(state.values())
    )
    for one, other in zip(ours, wanted):
        assert_close(one, other, 1e-12)


def test_hpc_goes_backward_twice_with_the_same_result():
    network = network_of("hpc")
    x, state, cut = case_of(network, 9, 3, 0.2)
    loss = weighted([network.unroll(x, state, cut)[0]])
    inputs = [x, *state.values(), *network.parameters()]
    once = torch.autograd.grad(loss, inputs, retain_graph=True)
    for one, other in zip(once, torch.autograd.grad(loss, inputs)):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_hpc_without_gradients_gives_the_same_numbers():
    network = network_of("hpc")
    x, state, cut = case_of(network, 9, 3, 0.2)
    with torch.no_grad():
        plain = network.unroll(x, state, cut)[0]
    torch.testing.assert_close(plain, network.unroll(x, state, cut)[0], rtol=0, atol=0)


def test_normal_is_the_formula():
    """By hand, in NumPy: both norms over all gates together, the scales after them."""
    network = network_of("normal")
    p = {name.split(".")[-1]: value.detach().numpy() for name, value in network.named_parameters()}
    x, state, _ = case_of(network, 1, 4, 0)
    h, c = (state[k].detach().numpy()[:, 0] for k in ("h", "c"))

    def norm(z):
        return (z - z.mean(1, keepdims=True)) / np.sqrt(z.var(1, keepdims=True) + 1e-5)

    def sigmoid(z):
        return 1 / (1 + np.exp(-z))

    gates = norm(x[0].detach().numpy() @ p["weight_x"].T) * p["scale_x"] + norm(h @ p["weight_h"].T) * p["scale_h"]
    o, i, f, u = np.split(gates + p["bias"], 4, 1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(u)
    _, after = network.step(x[0], state)
    np.testing.assert_allclose(after["c"].detach().numpy()[:, 0], c, atol=1e-12)
    np.testing.assert_allclose(after["h"].detach().numpy()[:, 0], sigmoid(o) * np.tanh(c), atol=1e-12)


@pytest.mark.parametrize(("kind", "module"), [("pytorch", nn.LSTM), ("gru", nn.GRU)])
@every_depth
def test_an_uncut_unroll_is_torchs_module(kind, module, layers):
    network = network_of(kind, layers)
    own = module(WIDTH, H, layers).double()
    own.load_state_dict(network.core.state_dict())
    x, _, _ = case_of(network, 7, 3, 0)
    torch.testing.assert_close(network.unroll(x)[0], own(x)[0], rtol=0, atol=0)


@pytest.mark.parametrize("kind", ["pytorch", "gru"])
@pytest.mark.parametrize("share", [0, 0.02, 0.3])
def test_fused_networks_call_their_kernel_a_few_times_only(kind, share):
    """Never step by step: at most log2 T + 2 calls, whatever the cuts."""
    network = network_of(kind)
    calls = []
    network.core.register_forward_hook(lambda *_: calls.append(1))
    x, state, cut = case_of(network, 64, 8, share)
    network.unroll(x, state, cut)
    assert len(calls) == 1 if share == 0 else len(calls) <= 8


@every_kind
def test_dropout_stands_between_layers_while_training(kind):
    network = network_of(kind, 2, dropout=0.5)
    x, state, cut = case_of(network, 6, 3, 0.1)
    assert not torch.equal(network.unroll(x, state, cut)[0], network.unroll(x, state, cut)[0])
    assert not torch.equal(network.step(x[0], state)[0], network.step(x[0], state)[0])
    network.eval()
    assert_close(network.unroll(x, state, cut)[0], stepwise(network, x, state, cut)[0], 1e-12)


# ------------------------------------------------------------------ rounds
@given(lengths=st.lists(st.integers(1, 200), min_size=1, max_size=60))
def test_rounds_run_each_row_exactly_its_length(lengths):
    done = np.zeros(len(lengths), int)
    rounds = plan_rounds(np.array(lengths))
    for steps, members in rounds:
        assert steps > 0 and len(members)
        done[members] += steps
    np.testing.assert_array_equal(done, lengths)
    assert sum(steps for steps, _ in rounds) <= max(lengths)
    assert len(rounds) <= max(lengths).bit_length()


@given(data=st.data(), steps=st.integers(1, 12), batch=st.integers(1, 5))
def test_stretches_cover_a_window(data, steps, batch):
    stop = np.array(data.draw(st.lists(st.booleans(), min_size=steps * batch, max_size=steps * batch)))
    stop = stop.reshape(steps, batch)
    plan = Stretches(stop)
    assert plan.lengths.sum() == steps * batch and len(plan.first) == len(plan.last) == batch
    np.testing.assert_array_equal(np.sort(plan.order), np.arange(steps * batch))
    np.testing.assert_array_equal(plan.order[plan.place], np.arange(steps * batch))
    assert len(plan.ended) == stop.sum()


# ------------------------------------------------------------------ interface
@every_kind
@every_depth
def test_states_are_trees_with_columns_first(kind, layers):
    network = network_of(kind, layers, dtype=torch.float32)
    state = network.initial_state(7)
    assert set(state) == ({"h"} if kind == "gru" else {"h", "c"})
    for leaf in state.values():
        assert leaf.shape == (7, layers, H) and leaf.dtype == torch.float32 and not leaf.any()
    assert network.double().initial_state(1)["h"].dtype == torch.float64


@every_kind
def test_no_state_is_the_initial_one_and_the_batch_may_change(kind):
    network = network_of(kind)
    for batch in (4, 1, 6):
        x, _, cut = case_of(network, 5, batch, 0.3)
        zeros = network.initial_state(batch)
        torch.testing.assert_close(network.unroll(x, None, cut)[0], network.unroll(x, zeros, cut)[0], rtol=0, atol=0)
        torch.testing.assert_close(network.step(x[0])[0], network.step(x[0], zeros)[0], rtol=0, atol=0)


@every_kind
@every_depth
def test_a_state_may_be_a_list_of_rows(kind, layers):
    network = network_of(kind, layers)
    x, state, _ = case_of(network, 4, 3, 0)
    with torch.no_grad():
        output, rows = network(
            x[:2], [{k: v[b][:, None] for k, v in state.items()} for b in range(3)], list_next_state=True
        )
        assert len(rows) == 3 and rows[0]["h"].shape == (layers, 1, H)
        again, _ = network(x[2:], rows)
        assert_close(torch.cat([output, again]), network(x, state)[0], 1e-12)
        rows[1] = None
        state = {
            k: torch.stack([row[k][:, 0] if row else torch.zeros(layers, H).double() for row in rows]) for k in state
        }
        assert_close(network(x, rows)[0], network(x, state)[0], 1e-12)
        assert_close(network.step(x[0], rows)[0], network.step(x[0], state)[0], 1e-12)


@every_kind
def test_cuts_may_be_of_any_kind_of_array(kind):
    network = network_of(kind)
    x, state, cut = case_of(network, 6, 3, 0.4)
    wanted = network.unroll(x, state, cut)[0]
    for same in (cut.bool(), cut.float(), cut.numpy(), cut.long().numpy().astype(bool)):
        torch.testing.assert_close(network.unroll(x, state, same)[0], wanted, rtol=0, atol=0)


@every_kind
def test_inputs_are_left_as_they_were(kind):
    network = network_of(kind)
    x, state, cut = case_of(network, 6, 3, 0.4)
    kept = [t.detach().clone() for t in (x, cut, *state.values())]
    network.trace(x, state, cut, [3]).output.sum().backward()
    for now, then in zip((x, cut, *state.values()), kept):
        torch.testing.assert_close(now.detach(), then, rtol=0, atol=0)


@every_kind
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_copy_computes_the_same_with_parameters_of_its_own(kind, copied):
    network = network_of(kind, 2)
    x, state, cut = case_of(network, 6, 3, 0.2)
    wanted = network.unroll(x, state, cut)[0]
    twin = copied(network)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
    torch.testing.assert_close(twin.unroll(x, state, cut)[0], wanted, rtol=0, atol=0)
    assert_close(twin.step(x[0], state)[0], wanted[0], 1e-12)


# ------------------------------------------------------------------ mistakes
@every_kind
def test_a_wrong_state_is_named(kind):
    network = network_of(kind)
    x, state, _ = case_of(network, 4, 3, 0)
    for call in (lambda s: network.unroll(x, s), lambda s: network.step(x[0], s)):
        with pytest.raises(
            ValueError, match=r"state\['h'\] has shape \(2, 1, 5\); wanted \[B, layers, H\] = \(3, 1, 5\)"
        ):
            call({k: v[:2] for k, v in state.items()})
        with pytest.raises(ValueError, match=r"state\['h'\] has shape \(3, 5\)"):
            call({k: v[:, 0] for k, v in state.items()})
        with pytest.raises(ValueError, match=r"the state of \w+ is \['h', 'z'\]; wanted a dictionary of \['h'"):
            call({"h": state["h"], "z": state["h"]})
        with pytest.raises(ValueError, match=r"the state of \w+ is Tensor; wanted"):
            call(state["h"])
        with pytest.raises(TypeError, match=r"state\['h'\] is a ndarray; wanted a torch tensor"):
            call({k: v.detach().numpy() for k, v in state.items()})
        with pytest.raises(ValueError, match="the state is a list of 2; wanted one entry for each of 3 columns"):
            call([None, None])
        with pytest.raises(ValueError, match="entry 1 of the state has 'h' of shape"):
            call([None, {k: v[:2, 0] for k, v in state.items()}, None])
        with pytest.raises(ValueError, match=r"entry 2 of the state is \['q'\]"):
            call([None, None, {"q": state["h"][0]}])


@every_kind
def test_wrong_inputs_and_cuts_are_named(kind):
    network = network_of(kind)
    x, _, cut = case_of(network, 4, 3, 0)
    with pytest.raises(ValueError, match=r"x has shape \(4, 3, 2\); wanted \[T, B, I\] with I = input_size = 3"):
        network.unroll(x[..., :2])
    with pytest.raises(ValueError, match=r"x has shape \(4, 3, 3\); wanted \[B, I\]"):
        network.step(x)
    with pytest.raises(ValueError, match=r"x has shape \(0, 3, 3\); wanted at least one step"):
        network.unroll(x[:0])
    with pytest.raises(ValueError, match=r"cut has shape \(3, 4\); wanted \[T, B\] = \(4, 3\)"):
        network.unroll(x, None, cut.T)
    with pytest.raises(ValueError, match=r"cut holds 0\.5; wanted 1 \(goes on\) or 0"):
        network.unroll(x, None, 0.5 * cut)
    for count in (-1, 5):
        with pytest.raises(ValueError, match=f"saved holds {count}; wanted step counts from 0 to T = 4"):
            network.trace(x, saved=[2, count])


def test_wrong_settings_are_named():
    with pytest.raises(ValueError, match=r"lstm_type is 'lstm'; wanted one of \['gru', 'hpc', 'normal', 'pytorch'\]"):
        get_lstm("lstm", 3, 4)
    with pytest.raises(ValueError, match="norm_type is 'BN'; wanted None or 'LN'"):
        get_lstm("normal", 3, 4, norm_type="BN")
    for name, arguments in {"input_size": (0, 4), "hidden_size": (3, 0), "num_layers": (3, 4, 0)}.items():
        with pytest.raises(ValueError, match=f"{name} is 0; wanted at least 1"):
            get_lstm("pytorch", *arguments)
    with pytest.raises(ValueError, match=r"dropout is 1\.0; wanted 0 <= dropout < 1"):
        get_lstm("gru", 3, 4, 2, dropout=1.0)


@every_kind
def test_the_signature_users_know(kind):
    network = get_lstm(kind, 3, 4, num_layers=2, norm_type="LN", dropout=0.0, seq_len=9, batch_size=2)
    output, state = network(torch.zeros(5, 3, 3), None)
    assert output.shape == (5, 3, 4) and state["h"].shape == (3, 2, 4)


# ------------------------------------------------------------------ masks
def test_sequence_mask():
    assert sequence_mask(torch.tensor([1, 3, 0])).tolist() == [[True, False, False], [True] * 3, [False] * 3]
    assert sequence_mask([2, 5], max_len=3).tolist() == [[True, True, False], [True, True, True]]
    assert sequence_mask(torch.tensor([], dtype=torch.long)).shape == (0, 0)
    assert sequence_mask([1]).dtype == torch.bool
    with pytest.raises(ValueError, match=r"lengths has shape \(1, 2\); wanted a vector"):
        sequence_mask([[1, 2]])


@pytest.mark.parametrize("kind", ["normal", "hpc", "pytorch", "gru"])
def test_settings_that_are_no_sizes_and_unknown_norms_are_named_for_every_type(kind):
    for name, value in dict(input_size="3", hidden_size=4.5, num_layers="2").items():
        with pytest.raises(TypeError, match=f"{name} is {value!r}; wanted a whole number of at least 1"):
            get_lstm(kind, **{"input_size": 3, "hidden_size": 4, name: value})
    with pytest.raises(ValueError, match="norm_type is 'BN'; wanted None or 'LN'"):
        get_lstm(kind, 3, 4, norm_type="BN")
    assert get_lstm(kind, np.int64(3), 4, norm_type=None).hidden_size == 4
