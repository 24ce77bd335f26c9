"""`hidden_state` against a dictionary of one state a column, in the guide's statements, and against bad input."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from ding_like.data import namedarraytuple, tree_leaves, tree_map
from ding_like.model import NormalizedModel, model_wrap
from ding_like.model.template.drqn import DRQN
from ding_like.model.wrapper.model_wrappers import HiddenStateWrapper
from ding_like.torch_utils.packing import pack, unpack

H = 3


class CountRNN(nn.Module):
    """`h' = h + obs`, `logit = h'`: a row's state is the sum of what its column has seen. One step or an unroll."""

    def forward(self, x, inference=False, saved_hidden_state_timesteps=None):
        obs, h = x["obs"], x["prev_state"]  # [T, B, 1], [B, 1, 1]
        steps = obs[None] if inference else obs
        states = [torch.zeros(steps.shape[1], 1, 1, dtype=obs.dtype) if h is None else h]
        for row in steps:
            states.append(states[-1] + row[:, None])
        logit = torch.stack(states[1:])[..., 0]
        out = {"logit": logit[0] if inference else logit, "next_state": states[-1]}
        if saved_hidden_state_timesteps is not None:
            out["saved_hidden_state"] = [states[k] for k in saved_hidden_state_timesteps]
        return out


class Cell(nn.Module):
    """A GRU cell over a state of two leaves; only `forward(x)`. `seen` holds what it was given."""

    def __init__(self, lists=False):
        super().__init__()
        self.cell, self.lists, self.seen = nn.GRUCell(2, H), lists, None

    def forward(self, x):
        prev = self.seen = x["prev_state"]
        n = len(x["obs"])
        if prev is None:
            prev = {"h": torch.zeros(n, 1, H), "n": torch.zeros(n, 1, 1)}
        elif self.lists:
            assert type(prev) is list
            prev = {key: torch.stack([row[key] for row in prev]) for key in ("h", "n")}
        h = self.cell(x["obs"], prev["h"][:, 0])
        after = {"h": h[:, None], "n": prev["n"] + 1}
        if self.lists:
            after = [{key: leaf[b] for key, leaf in after.items()} for b in range(n)]
        return {"logit": h, "count": after[0]["n"] if self.lists else after["n"], "next_state": after}


class ListCell(Cell):
    """The same in DI-engine's form of a state: a list of B dictionaries."""

    def __init__(self):
        super().__init__(lists=True)


class WithInitial(Cell):
    def initial_state(self, n):
        return {"h": torch.zeros(n, 1, H), "n": torch.full((n, 1, 1), 5.0)}


def cell(kind=Cell):
    torch.manual_seed(0)
    return kind()


def state(n, seed=0):
    g = torch.Generator().manual_seed(seed)
    return {"h": torch.rand(n, 1, H, generator=g), "n": torch.rand(n, 1, 1, generator=g)}


def row_of(tree, b):
    return {key: leaf[b] for key, leaf in tree.items()}


def equal(a, b):
    return all(torch.equal(x, y) for x, y in zip(tree_leaves(a), tree_leaves(b), strict=True))


def counter(**kwargs):
    return model_wrap(CountRNN(), wrapper_name="hidden_state", **kwargs)


def held(wrapped):
    return wrapped.run_state_dict()["tree"]


def ones(*shape):
    return torch.ones(*shape, 1)


# ---------------------------------------------------------------- against one state a column
KINDS = st.sampled_from([Cell, ListCell, WithInitial])
ACTS = st.sampled_from(["all", "some", "some", "reset", "replace", "replace_list"])


@settings(max_examples=40, deadline=None)
@given(data=st.data(), b=st.integers(1, 5), acts=st.lists(ACTS, max_size=8), hint=st.booleans(), kind=KINDS)
def test_any_sequence_of_calls_is_that_of_single_columns(data, b, acts, hint, kind):
    net = cell(kind)
    wrapped = model_wrap(net, "hidden_state", state_num=b if hint else None, save_prev_state=True)
    initial = {"h": torch.zeros(1, H), "n": torch.full((1, 1), 5.0 if kind is WithInitial else 0.0)}
    columns = dict.fromkeys(range(b), initial)
    given_out = []

    def some():
        order = data.draw(st.permutations(range(b)))
        return order[: data.draw(st.integers(1, b))]

    for t, act in enumerate(acts):
        ids = list(range(b)) if act == "all" else some()
        named = None if act == "all" else data.draw(st.sampled_from([list, tuple, np.array, torch.tensor]))(ids)
        if act == "reset":
            wrapped.reset(data_id=named)
            columns.update(dict.fromkeys(ids, initial))
        elif act.startswith("replace"):
            if kind is not WithInitial and not given_out:  # before the first call a state comes in the network's form
                act = "replace" if kind is Cell else "replace_list"
            new = state(len(ids), seed=t)
            rows = [row_of(new, i) for i in range(len(ids))]
            rows[0] = None if act == "replace_list" else rows[0]
            wrapped.reset(data_id=named, state=rows if act == "replace_list" else new)
            columns.update((i, initial if row is None else row) for i, row in zip(ids, rows))
        else:
            obs = torch.rand(len(ids), 2, generator=torch.Generator().manual_seed(t))
            with torch.inference_mode(data.draw(st.booleans())):
                out = wrapped.forward({"obs": obs}, data_id=named, inference=True)
            assert "next_state" not in out
            for row, i in enumerate(ids):
                assert equal(row_of(out["prev_state"], row), columns[i])
                prev = {key: leaf[None] for key, leaf in columns[i].items()}
                with torch.no_grad():
                    want = cell()({"obs": obs[row : row + 1], "prev_state": prev})
                torch.testing.assert_close(out["logit"][row], want["logit"][0])
                columns[i] = row_of(held(wrapped), i)
                torch.testing.assert_close(columns[i], row_of(want["next_state"], 0))
            given_out.append((out["prev_state"], copy.deepcopy(out["prev_state"])))
    assert all(equal(now, then) for now, then in given_out)


def test_columns_that_come_one_after_another_need_no_number():
    wrapped = counter(save_prev_state=True)
    assert wrapped.forward(ones(1), data_id=[3], inference=True)["logit"].item() == 1
    assert wrapped.forward(ones(2), data_id=[0, 3], inference=True)["logit"].flatten().tolist() == [1, 2]
    assert wrapped.forward(ones(1), data_id=np.array([5]), inference=True)["prev_state"].item() == 0
    assert held(wrapped).flatten().tolist() == [1, 0, 0, 2, 0, 1]


def test_the_state_is_reset_for_those_columns_only():
    """B33"""
    wrapped = counter(state_num=3)
    for _ in range(2):
        wrapped.forward(ones(3), inference=True)
    wrapped.reset(data_id=[1])
    assert wrapped.forward(ones(3), inference=True)["logit"].flatten().tolist() == [3, 1, 3]
    wrapped.reset(data_id=2)
    wrapped.reset(data_id=[])
    assert held(wrapped).flatten().tolist() == [3, 1, 0]
    wrapped.reset()
    assert wrapped.forward(ones(5), inference=True)["logit"].flatten().tolist() == [1] * 5


# ---------------------------------------------------------------- initial states
def test_a_network_without_an_initial_state_gets_none_once_then_zeros():
    net = cell()
    wrapped = model_wrap(net, "hidden_state", save_prev_state=True)
    out = wrapped.forward(torch.rand(2, 2), data_id=[0, 1], inference=True)
    assert net.seen is None and equal(out["prev_state"], {"h": torch.zeros(2, 1, H), "n": torch.zeros(2, 1, 1)})
    wrapped.forward(torch.rand(2, 2), data_id=[1, 2], inference=True)
    assert net.seen["n"].flatten().tolist() == [1, 0]
    wrapped.reset()
    wrapped.forward(torch.rand(4, 2), inference=True)
    assert equal(net.seen, {"h": torch.zeros(4, 1, H), "n": torch.zeros(4, 1, 1)})


def test_init_fn_gives_the_state_of_one_column():
    net = cell()
    one = {"h": np.arange(H, dtype=np.float32)[None], "n": torch.full((1, 1), 7.0)}
    wrapped = model_wrap(net, "hidden_state", init_fn=lambda: one)
    wrapped.forward(torch.rand(2, 2), inference=True)
    assert net.seen["h"].tolist() == [[[0, 1, 2]]] * 2 and net.seen["n"].flatten().tolist() == [7, 7]
    wrapped.reset(data_id=[1])
    assert held(wrapped)["n"].flatten().tolist() == [8, 7]


def test_a_list_with_gaps_is_filled_with_the_initial_state():
    for known in (False, True):
        wrapped = model_wrap(cell(), "hidden_state")
        if known:
            wrapped.forward(torch.rand(3, 2), inference=True)
        wrapped.reset(state=[None, row_of(state(1), 0)])
        assert equal(row_of(held(wrapped), 1), row_of(state(1), 0))
        assert equal(row_of(held(wrapped), 0), {"h": torch.zeros(1, H), "n": torch.zeros(1, 1)})
    wrapped.reset(state=[None, None])
    wrapped.forward(torch.rand(2, 2), inference=True)


# ---------------------------------------------------------------- what the guide says
def test_the_guides_burn_in_reads_the_true_slots():
    """B23"""
    burnin, nstep = 3, 2
    obs = torch.arange(10.0)[:, None, None].expand(10, 4, 1)  # [T, B, 1]
    collect = counter(state_num=4, save_prev_state=True)
    stored = [collect.forward({"obs": row}, inference=True)["prev_state"] for row in obs]
    data = {"prev_state": torch.stack(stored)[:1], "obs": obs}
    learn, target = counter(state_num=99), counter(state_num=2)
    learn.reset(data_id=None, state=data["prev_state"][0])
    target.reset(data_id=None, state=data["prev_state"][0])
    inputs = {"obs": data["obs"][: burnin + nstep], "enable_fast_timestep": True}
    with torch.no_grad():
        wanted = [burnin, burnin + nstep]
        burnin_output = learn.forward(inputs, saved_hidden_state_timesteps=wanted)
        burnin_target = target.forward(inputs, saved_hidden_state_timesteps=wanted)
    assert list(inputs) == ["obs", "enable_fast_timestep"]
    learn.reset(data_id=None, state=burnin_output["saved_hidden_state"][0])
    assert held(learn).flatten().tolist() == [0 + 1 + 2] * 4
    q_value = learn.forward({"obs": data["obs"][burnin:-nstep], "enable_fast_timestep": True})["logit"]
    assert q_value[:, 0, 0].tolist() == [6, 10, 15, 21, 28]
    target.reset(data_id=None, state=burnin_target["saved_hidden_state"][1])
    assert held(target).flatten().tolist() == [10] * 4
    assert target.forward({"obs": data["obs"][burnin + nstep :]})["logit"][:, 0, 0].tolist() == [15, 21, 28, 36, 45]


@pytest.mark.parametrize("kind", [Cell, ListCell])
def test_a_model_with_only_forward_x_is_stepped_through_an_unroll(kind):
    """B32"""
    obs = torch.rand(5, 3, 2)  # [T, B, 2]
    acting, learner = (model_wrap(cell(kind), "hidden_state", save_prev_state=True) for _ in range(2))
    rows = [acting.forward(obs[t], inference=True) for t in range(5)]
    start = {key: torch.zeros(1, 3, 1, n) for key, n in (("h", H), ("n", 1))}  # [1, B, ...], as in the learner
    learner.reset(data_id=None, state={key: leaf[0] for key, leaf in start.items()})
    out = learner.forward({"obs": obs, "enable_fast_timestep": True}, saved_state_timesteps=[2, 0, 5])
    torch.testing.assert_close(out["logit"], torch.stack([row["logit"] for row in rows]))
    assert out["saved_hidden_state"] is out["saved_state"] and len(out["saved_state"]) == 3
    torch.testing.assert_close(out["saved_state"][0], rows[2]["prev_state"])
    torch.testing.assert_close(out["saved_state"][1], row_of(start, 0))
    torch.testing.assert_close(out["saved_state"][2], held(acting))
    assert equal(held(learner), out["saved_state"][2])
    learner.reset(state=out["saved_state"][0])
    torch.testing.assert_close(learner.forward({"obs": obs[2:]}, inference=False)["logit"], out["logit"][2:])


def test_an_unroll_without_a_state_begins_at_the_initial_one():
    wrapped = model_wrap(cell(), "hidden_state", save_prev_state=True)
    out = wrapped.forward(torch.rand(4, 2, 2), inference=False, saved_hidden_state_timesteps=[0, 1])
    assert [s["n"].flatten().tolist() for s in out["saved_state"]] == [[0, 0], [1, 1]]
    assert out["prev_state"]["n"].flatten().tolist() == [0, 0] and held(wrapped)["n"].flatten().tolist() == [4, 4]


def test_a_stepped_unroll_begins_anew_after_a_cut():
    """B28"""
    wrapped = model_wrap(cell(), "hidden_state")
    cut = torch.tensor([[1, 1], [0, 1], [1, 1], [1, 1], [1, 1]])
    out = wrapped.forward({"obs": torch.rand(5, 2, 2), "cut": cut}, inference=False)
    assert (out["count"].squeeze() - 1).T.tolist() == [[0, 1, 0, 1, 2], [0, 1, 2, 3, 4]]


def test_further_inputs_go_with_their_step():
    class Sums(nn.Module):
        def forward(self, x):
            h = x["prev_state"] if x["prev_state"] is not None else torch.zeros(2, 1)
            return {"logit": h + x["obs"]["a"] + x["prev_action"][:, None] * x["scale"], "next_state": h + 1}

    data = {"obs": {"a": torch.zeros(3, 2, 1)}, "prev_action": torch.tensor([[1, 2]] * 3), "scale": 10}
    out = model_wrap(Sums(), "hidden_state").forward(data, inference=False)
    assert out["logit"].squeeze().tolist() == [[10, 20], [11, 21], [12, 22]]


def test_a_network_that_speaks_in_lists_gets_lists_from_any_wrapper():
    net = cell(ListCell)
    rows = [row_of(state(2), b) for b in range(2)]
    fresh = model_wrap(copy.deepcopy(net), "hidden_state")
    fresh.reset(state=rows)
    fresh.forward(torch.rand(2, 2))
    assert type(fresh.seen) is list and equal(fresh.seen[1], rows[1])
    learner = model_wrap(net, "hidden_state")  # that class has returned a list by now
    learner.reset(state=state(2))
    learner.forward(torch.rand(2, 2))
    assert type(net.seen) is list and equal(net.seen[0], rows[0])
    assert list(held(learner)) == ["h", "n"]


def test_a_list_of_states_reaches_a_network_of_trees_as_a_tree():
    for kind in (Cell, WithInitial):
        net = cell(kind)
        wrapped = model_wrap(net, "hidden_state")
        if kind is Cell:
            wrapped.forward(torch.rand(2, 2))
        wrapped.reset(state=[row_of(state(2), b) for b in range(2)])
        wrapped.forward(torch.rand(2, 2))
        assert equal(net.seen, state(2))


# ---------------------------------------------------------------- gradients and memory
def test_gradient_flows_inside_an_unroll_and_stops_at_the_state():
    for kind, kwargs in ((CountRNN, {}), (Cell, {})):
        wrapped = model_wrap(kind(), "hidden_state")
        obs = torch.rand(4, 2, 1 if kind is CountRNN else 2, requires_grad=True)
        out = wrapped.forward(obs, inference=False, **kwargs)
        out["logit"][-1].sum().backward()
        assert (obs.grad[0] != 0).all()
        assert all(not leaf.requires_grad for leaf in tree_leaves(held(wrapped)))
        later = wrapped.forward(torch.rand_like(obs), inference=False)["logit"].sum()
        obs.grad = None
        if later.requires_grad:
            later.backward()
        assert obs.grad is None


def test_a_state_given_with_a_gradient_is_copied_and_detached():
    wrapped, given = counter(), torch.ones(2, 1, 1, requires_grad=True)
    wrapped.reset(state=given)
    with torch.no_grad():
        given.fill_(9)
    assert not held(wrapped).requires_grad and held(wrapped).flatten().tolist() == [1, 1]
    array = np.ones((2, 1, 1), np.float32)
    wrapped.reset(state=array)
    array[:] = 9
    assert held(wrapped).flatten().tolist() == [1, 1]


def test_states_of_acting_serve_a_call_that_learns():
    wrapped = model_wrap(cell(), "hidden_state", save_prev_state=True)
    with torch.inference_mode():
        wrapped.forward(torch.rand(3, 2), inference=True)
    wrapped.forward(torch.rand(3, 2), inference=True)["logit"].sum().backward()
    with torch.inference_mode():
        wrapped.forward(torch.rand(3, 2), inference=True)
    wrapped.reset(data_id=[1])
    assert held(wrapped)["n"].flatten().tolist() == [3, 0, 3]


# ---------------------------------------------------------------- stacks
STACKS = [
    ("hidden_state", "eps_greedy_sample"),
    ("eps_greedy_sample", "hidden_state"),
    ("hidden_state", "argmax_sample"),
    ("argmax_sample", "hidden_state"),
    ("hidden_state", "multinomial_sample"),
    ("target", "hidden_state", "argmax_sample"),
    ("hidden_state", "target"),
]


@pytest.mark.parametrize("names", STACKS, ids="+".join)
def test_every_order_of_wrappers_keeps_resets_and_saves_the_state(names):
    def stack():
        wrapped = cell()
        for name in names:
            own = {"update_kwargs": {"freq": 1}} if name == "target" else {}
            wrapped = model_wrap(wrapped, name, **({"save_prev_state": True} if name == "hidden_state" else own))
        return wrapped

    wrapped, plain = stack(), model_wrap(cell(), "hidden_state")
    assert wrapped.keeps_state
    assert wrapped.noise_width == ("eps_greedy_sample" in names) * 2 + ("multinomial_sample" in names)
    noise = np.full((3, max(wrapped.noise_width, 1)), 0.999)
    setting = {"noise": noise} if wrapped.noise_width else {}
    for t in range(4):
        obs = torch.rand(3, 2)
        out = wrapped.forward({"obs": obs}, data_id=[0, 1, 2], inference=True, **setting)
        want = plain.forward({"obs": obs}, inference=True)
        assert torch.equal(out["logit"], want["logit"]) and "prev_state" in out
        if "sample" in "".join(names):
            assert out["action"].shape == (3,)
        if t == 1:
            wrapped.reset(data_id=[2])
            plain.reset(data_id=[2])
        if t == 2:
            wrapped.reset(state=state(3))
            plain.reset(state=state(3))
    assert equal(wrapped.run_state_dict()["tree"], held(plain))


def test_a_stack_without_a_state_says_so():
    wrapped = model_wrap(cell(), "argmax_sample")
    assert not wrapped.keeps_state and wrapped.run_state_dict() == {}
    wrapped.reset(data_id=[0])


def test_the_networks_own_state_dict_and_mode_stay_in_reach():
    """What `target.update(learn_model.state_dict())` of a user's policy needs."""
    net = cell()
    learn = model_wrap(model_wrap(net, "hidden_state"), "argmax_sample")
    target = model_wrap(model_wrap(copy.deepcopy(net), "target", update_kwargs={"freq": 1}), "hidden_state")
    with torch.no_grad():
        net.cell.weight_hh.add_(1)
    learn.train()
    target.train()
    target.update(learn.state_dict())
    assert net.training and not target.training
    torch.testing.assert_close(target.state_dict()["model"]["cell.weight_hh"], net.cell.weight_hh.detach())


def test_the_normaliser_sees_the_observation_and_the_network_its_state():
    net = cell()
    wrapped = model_wrap(NormalizedModel(net, 2), "hidden_state")
    for _ in range(2):
        wrapped.forward(torch.rand(3, 2), inference=True)
    assert net.seen["n"].flatten().tolist() == [1, 1, 1]


def test_action_masks_are_seen_on_both_sides():
    class Masked(Cell):
        def forward(self, x):
            return super().forward({**x, "obs": x["obs"]["pos"]})

    obs = {"pos": torch.rand(3, 2), "action_mask": torch.tensor([[0, 0, 1], [0, 1, 0], [1, 0, 0]])}
    wrapped = model_wrap(model_wrap(Masked(), "hidden_state"), "multinomial_sample")
    for data in ({"obs": obs}, obs):
        noise = np.full((3, 1), 0.5)
        assert wrapped.forward(data, inference=True, noise=noise)["action"].tolist() == [2, 1, 0]
    obs["action_mask"] = torch.zeros(3, 3)
    with pytest.raises(ValueError, match="no action is allowed"):
        wrapped.forward({"obs": obs}, inference=True)


# ---------------------------------------------------------------- exact resume
@pytest.mark.parametrize("kind", [Cell, ListCell, WithInitial])
def test_a_restored_wrapper_goes_on_bit_for_bit(kind):
    obs = torch.rand(6, 3, 2)
    first = model_wrap(model_wrap(cell(kind), "hidden_state", save_prev_state=True), "argmax_sample")
    with torch.inference_mode():
        for t in range(3):
            first.forward(obs[t], inference=True)
    first.reset(data_id=[0])
    saved = unpack(copy.deepcopy(pack(first.run_state_dict())))
    second = model_wrap(model_wrap(cell(kind), "hidden_state", save_prev_state=True), "argmax_sample")
    second.load_run_state_dict(saved)
    for leaf in tree_leaves(saved["tree"]):
        leaf.zero_()
    for t in range(3, 6):
        outs = [w.forward(obs[t, :2], data_id=[2, 0], inference=True) for w in (first, second)]
        assert torch.equal(outs[0]["logit"], outs[1]["logit"]) and equal(outs[0]["prev_state"], outs[1]["prev_state"])
        for w in (first, second):
            w.reset(data_id=[2])
    with pytest.raises(ValueError, match="saved state holds"):
        second.load_run_state_dict({"state": 1})


def test_a_copy_of_a_wrapper_is_on_its_own():
    first = counter()
    first.forward(ones(2), inference=True)
    second = copy.deepcopy(first)
    second.forward(ones(2), inference=True)
    assert held(first).flatten().tolist() == [1, 1] and held(second).flatten().tolist() == [2, 2]


# ---------------------------------------------------------------- other forms of a state
def test_a_named_tuple_is_a_state():
    lstm = namedarraytuple("Lstm", ["h", "c"])

    class Named(nn.Module):
        def forward(self, x, **kwargs):
            prev = x["prev_state"] if x["prev_state"] is not None else lstm(torch.zeros(2, 1, 1), torch.zeros(2, 1, 1))
            return {"logit": x["obs"], "next_state": lstm(prev.h + 1, prev.c - 1)}

    wrapped = model_wrap(Named(), "hidden_state", save_prev_state=True)
    wrapped.forward(ones(2), inference=True)
    out = wrapped.forward(ones(1), data_id=[1], inference=True)
    assert out["prev_state"].h.item() == 1 and held(wrapped).c.flatten().tolist() == [-1, -2]


def test_a_bare_module_is_wrapped_too():
    assert HiddenStateWrapper(CountRNN(), 2).forward(ones(2), inference=True)["logit"].flatten().tolist() == [1, 1]


# ---------------------------------------------------------------- bad input
def test_a_model_without_next_state_is_named():
    class Plain(nn.Module):
        def forward(self, x):
            return {"logit": x["obs"]}

    with pytest.raises(KeyError, match=r"hidden_state: the network \(Plain\) gives \['logit'\]; wanted 'next_state'"):
        model_wrap(Plain(), "hidden_state").forward(ones(2))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"h": torch.zeros(2, 1, H)}, "h .* the state known so far h .* n "),
        ({"h": torch.zeros(2, 1, H + 1), "n": torch.zeros(2, 1, 1)}, "same shapes"),
        ({"h": torch.zeros(2, 1, H), "n": torch.zeros(3, 1, 1)}, "wanted tensors of 2 rows"),
        ({"h": torch.zeros(()), "n": torch.zeros(())}, "equally many rows"),
        ({}, "rows"),
        ([], "has 0 states; wanted at least 1"),
        ([{"h": torch.zeros(1, H)}, {"n": torch.zeros(1, 1)}], "rows of one form"),
        (["h", "n"], "list of states"),
        ("h", "a state holds a str"),
    ],
)
def test_a_state_of_another_form_is_named(given, words):
    wrapped = model_wrap(cell(), "hidden_state")
    wrapped.forward(torch.rand(2, 2), inference=True)
    with pytest.raises(ValueError, match=words):
        wrapped.reset(state=given)


def test_a_wrong_state_given_before_the_first_call_is_named():
    class Careless(nn.Module):
        def forward(self, x):
            return {"logit": x["obs"], "next_state": {"h": torch.zeros(2, 1, 1)}}

    wrapped = model_wrap(Careless(), "hidden_state")
    wrapped.reset(state={"c": torch.zeros(2, 1, 1)})
    with pytest.raises(ValueError, match=r"next_state of the network \(Careless\) has leaves h"):
        wrapped.forward(ones(2))
    with pytest.raises(ValueError, match="the state given to reset"):
        model_wrap(cell(WithInitial), "hidden_state").reset(state={"c": torch.zeros(2, 1, 1)})


def test_numbers_of_rows_that_differ_are_named():
    wrapped = counter(state_num=4)
    wrapped.forward(ones(4), inference=True)
    with pytest.raises(ValueError, match="there are states of 4 columns, the observation has 3 rows"):
        wrapped.forward(ones(3), inference=True)
    with pytest.raises(ValueError, match="states of 4 columns, the observation has 2 rows"):
        wrapped.forward(ones(4, 2), inference=False)
    with pytest.raises(ValueError, match="data_id names 2 columns, the observation has 3 rows"):
        wrapped.forward(ones(3), data_id=[0, 1], inference=True)
    with pytest.raises(ValueError, match="wanted tensors of 2 rows"):
        wrapped.reset(data_id=[0, 1], state=torch.zeros(3, 1, 1))
    with pytest.raises(ValueError, match="has 3 states; wanted 2"):
        wrapped.reset(data_id=[0, 1], state=[None] * 3)
    wrapped.reset(state=torch.zeros(7, 1, 1))
    assert wrapped.forward(ones(7), inference=True)["logit"].shape == (7, 1)


@pytest.mark.parametrize(
    ("ids", "error", "words"),
    [
        ([4], ValueError, "there are 4 columns"),
        ([-1], ValueError, "different column numbers from 0"),
        ([1, 1], ValueError, "different column numbers"),
        ([0.5], TypeError, "column numbers"),
        (np.array([True, False]), TypeError, "column numbers"),
    ],
)
@pytest.mark.parametrize("fresh", [True, False])
def test_columns_that_are_none_are_named(ids, error, words, fresh):
    wrapped = counter(state_num=4)
    if not fresh:
        wrapped.forward(ones(4), inference=True)
    for call in (lambda: wrapped.reset(data_id=ids), lambda: wrapped.forward(ones(1), data_id=ids, inference=True)):
        with pytest.raises(error, match=words):
            call()


def test_more_columns_than_the_hint_are_all_there_is():
    wrapped = counter(state_num=2)
    assert wrapped.forward(ones(4), data_id=range(4), inference=True)["logit"].shape == (4, 1)
    assert wrapped.forward(ones(1), data_id=[3], inference=True)["logit"].item() == 2


def test_steps_that_an_unroll_has_not_are_named():
    for wrapped, steps in ((model_wrap(cell(), "hidden_state"), [6]), (model_wrap(cell(), "hidden_state"), [-1])):
        with pytest.raises(ValueError, match="an unroll of 5 steps with saved_hidden_state_timesteps"):
            wrapped.forward(torch.rand(5, 2, 2), saved_hidden_state_timesteps=steps)
    with pytest.raises(ValueError, match="at least one step"):
        model_wrap(cell(), "hidden_state").forward(torch.rand(0, 2, 2), inference=False)
    with pytest.raises(ValueError, match="for one step"):
        counter().forward(ones(2), inference=True, saved_hidden_state_timesteps=[1])


def test_arguments_that_make_no_sense_are_named():
    for kwargs in ({"state_num": 0}, {"state_num": True}):
        with pytest.raises(ValueError, match="state_num"):
            counter(**kwargs)
    with pytest.raises(TypeError, match="init_fn"):
        counter(init_fn=3)


@pytest.fixture
def drqn():
    torch.manual_seed(0)
    return DRQN(3, 2, [4], lstm_type="pytorch")


Z = torch.zeros(2, 1, 4)


@pytest.mark.parametrize("called", [False, True])
@pytest.mark.parametrize(
    "given",
    [
        Z,
        (Z, Z),
        [Z[0], Z[1]],
        {"h": Z},
        {"h": Z, "c": None},
        {"h": Z, "x": Z},
        {"h": Z, "c": Z, "x": Z},
        {"h": {"c": Z}},
    ],
)
def test_a_state_of_another_form_is_named_where_it_is_given(drqn, given, called):
    wrapped = model_wrap(drqn, "hidden_state")
    if called:
        wrapped.forward({"obs": torch.zeros(2, 3)}, inference=True)
    says = r"the state given to reset has leaves .*the state known so far h \[\d, 1, 4\], c \[\d, 1, 4\]; wanted"
    with pytest.raises(ValueError, match=says):
        wrapped.reset(state=given)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("as_list", [False, True])
def test_a_state_of_another_type_of_numbers_becomes_the_networks(dtype, as_list):
    torch.manual_seed(0)
    net = DRQN(3, 2, [4], lstm_type="pytorch").to(dtype)
    wrapped, obs = model_wrap(net, "hidden_state"), torch.rand(2, 3, dtype=dtype)
    given = {name: torch.rand(2, 1, 4, dtype=torch.float64) for name in ("h", "c")}
    want = net({"obs": obs, "prev_state": {k: v.to(dtype) for k, v in given.items()}}, inference=True)["logit"]
    wrapped.reset(state=[row_of(given, b) for b in range(2)] if as_list else {k: v.numpy() for k, v in given.items()})
    got = wrapped.forward({"obs": obs}, inference=True)["logit"]
    assert got.dtype == dtype and torch.equal(got, want)


@pytest.mark.parametrize("lstm_type", ["pytorch", "gru", "normal", "hpc"])
def test_an_unroll_begins_at_the_state_of_init_fn_where_it_is_cut(lstm_type):
    torch.manual_seed(0)
    net = DRQN(3, 2, [4], lstm_type=lstm_type)
    first = tree_map(lambda leaf: torch.rand_like(leaf[0]), net.initial_state(1))
    wrapped = model_wrap(net, "hidden_state", init_fn=lambda: first)
    obs, cut = torch.rand(6, 2, 3), torch.tensor([[1.0, 1], [0, 1], [1, 0], [1, 1], [0, 1], [1, 1]])
    got = wrapped.forward({"obs": obs, "cut": cut}, inference=False)["logit"]
    wrapped.reset()
    for t in range(6):
        want = wrapped.forward({"obs": obs[t]}, inference=True)["logit"]
        torch.testing.assert_close(got[t], want)
        wrapped.reset(data_id=np.flatnonzero(cut[t] == 0).tolist())
