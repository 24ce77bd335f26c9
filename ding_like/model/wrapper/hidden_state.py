"""`hidden_state`: keeps the recurrent state of every env column between calls of a model.

The state is one tree with leaves `[B, layers, H]`, a row a column. Rows are never written in place, so those given to
the model or handed out as `prev_state` keep their values.
"""

from __future__ import annotations

import inspect
import operator
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ding_like.data import leading_shape, tree_index, tree_map, tree_stack
from ding_like.model.wrapper.base_wrapper import (
    BaseModelWrapper,
    ModelWrapper,
    innermost,
    is_numpy_step,
    steps_in_numpy,
)
from ding_like.model.wrapper.cuts import begins_anew
from ding_like.model.wrapper.state_rows import StateRows, check_form, check_rows, detached, row_count
from ding_like.utils import WRAPPER_REGISTRY
from ding_like.utils.log import warn_once

TIMESTEPS = ("saved_hidden_state_timesteps", "saved_state_timesteps")
SAVED = ("saved_hidden_state", "saved_state")

OVERLOOKS = (
    "takes no notice of its input 'cut': an unroll in which an episode begins is stepped through, which is right but "
    "slow; let its state be the initial one after each step at which cut [T, B] is 0 (as get_lstm(...).unroll does)"
)

_LIST_MODELS: weakref.WeakSet[type] = weakref.WeakSet()
"""Network classes that returned a list of states: other wrappers of them know it before their own first call."""


def _nothing() -> None:
    return None


@WRAPPER_REGISTRY.register("hidden_state")
class HiddenStateWrapper(ModelWrapper):
    """Gives a recurrent model its `prev_state` and keeps the `next_state` that it returns, detached.

    A model that returns a list of B states, one a column, gets such a list; all others get the tree. Before its first
    call that is known from its `initial_state`, from other models of its class, else from what `reset` is given.

    Args:
        model: a network or a wrapper. One whose forward takes no `inference` is stepped through an unroll.
        state_num: number of columns, a hint: `reset(state=...)` and calls over all columns bring their own number.
        save_prev_state: whether the output has `prev_state [B, ...]`, the state before the call.
        init_fn: the initial state of one column, leaves `[layers, H]`. None means the network's `initial_state(B)`;
            a network without one gets `prev_state=None` until its first `next_state` shows the shape of the zeros.
    """

    def __init__(
        self,
        model: Any,
        state_num: int | None = None,
        save_prev_state: bool = False,
        init_fn: Callable[[], Any] = _nothing,
    ) -> None:
        super().__init__(model if isinstance(model, ModelWrapper) else BaseModelWrapper(model))
        if state_num is not None and (type(state_num) is bool or operator.index(state_num) < 1):
            raise ValueError(f"hidden_state: state_num is {state_num!r}; wanted the number of columns, or None")
        if not callable(init_fn):
            raise TypeError(f"hidden_state: init_fn is {init_fn!r}; wanted a function without arguments")
        self.keeps_state = True
        self._save, self._init_fn = save_prev_state, init_fn
        self._net = innermost(self._model)
        parameters = inspect.signature(self._net.forward).parameters
        self._what = f"next_state of the network ({self._name()})"
        self._any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        self._accepted = set(parameters)
        steps = parameters["inference"].default if "inference" in parameters else None
        self._default = not steps if type(steps) is bool else None  # whether a call without `inference` is an unroll
        self._numpy_steps = steps_in_numpy(self._net)
        self._rows = StateRows(state_num, self._initial)
        self._lists: bool | None = None  # whether the network speaks in lists of states; None: not known yet
        self._heeds_cut: bool | None = None  # whether it begins anew where `cut` is 0; None: not asked yet
        self._like: Any = None  # zeros shaped as the state of one column `[1, ...]`, once a next_state was seen

    # ------------------------------------------------------------------ protocol
    def forward(self, data: Any, data_id: Any = None, **kwargs: Any) -> dict:
        """The model's output without `next_state`.

        Args:
            data: `{'obs': ...}` and further inputs, left as they are, or an observation `[B, ...]` alone.
            data_id: columns of the rows; None: all.
            kwargs: for the model. `inference=True` is one step `[B, ...]`, False an unroll `[T, B, ...]`;
                `saved_hidden_state_timesteps=[k, ...]` makes `saved_hidden_state`, the states after k steps.

        Raises KeyError for a model without `next_state`, ValueError for numbers of rows that differ.
        """
        if not isinstance(data, dict) or "obs" not in data:
            data = {"obs": data}
        if self._numpy_steps and is_numpy_step(data, kwargs) and kwargs.keys().isdisjoint(TIMESTEPS):
            return self._numpy_step(data, data_id, kwargs)
        timesteps = _take_timesteps(kwargs)
        unroll = self._unrolls(data, kwargs)
        columns = None if data_id is None else self._rows.columns(data_id)
        self._rows.turn(torch.Tensor)
        n = self._expected(data["obs"], columns, unroll)
        prev = self._rows.take(columns, leading_shape(data["obs"])[0] if n is None else n)
        if prev is not None and torch.is_grad_enabled():
            prev = tree_map(_recordable, prev)
        if unroll and (self._must_step(timesteps) or self._overlooks_cut(data, prev, kwargs)):
            output, state = self._stepped(data, prev, timesteps, kwargs)
        else:
            output, state = self._called(data, prev, n, timesteps, kwargs)
        state = detached(state)
        if self._save:
            output["prev_state"] = self._initial(row_count(state)) if prev is None else prev
        self._rows.put(columns, state)
        return output

    def _numpy_step(self, data: dict, data_id: Any, kwargs: dict) -> dict:
        """One step for acting: the network takes and gives arrays, and so the states are."""
        rows = self._rows
        rows.turn(np.ndarray)
        columns = None if data_id is None else rows.columns(data_id)
        self._expected(data["obs"], columns, False)
        prev = rows.take(columns, len(data["obs"]))
        output = self._model.forward({**data, "prev_state": prev}, **kwargs)
        if self._save:
            output["prev_state"] = prev
        rows.put(columns, output.pop("next_state"))
        return output

    def reset(self, data_id: Any = None, state: Any = None, **kwargs: Any) -> None:
        """Columns `data_id` (all for None) begin anew, or at `state`, which is copied.

        Args:
            state: a tree `[B, ...]`, or a list of B states in which None is the initial one. Without `data_id` its B
                becomes the number of columns.

        Raises ValueError naming what does not fit.
        """
        super().reset(data_id=data_id, **kwargs)
        columns = None if data_id is None else self._rows.columns(data_id)
        if state is not None:
            given = self._given(state, None if columns is None else len(columns))
            if given is not None:
                self._rows.put(columns, given)
                return
        if columns is None:
            self._rows.forget()
        elif self._rows.tree is not None and columns:
            self._rows.put(columns, self._initial(len(columns)))

    def run_state_dict(self) -> dict[str, Any]:
        """The states of all columns and what is known of their form, for exact resume."""
        return {**self._rows.state_dict(), "like": self._like, "lists": self._lists}

    def load_run_state_dict(self, state: dict[str, Any]) -> None:
        """Restore `run_state_dict`. Raises ValueError for anything else."""
        wanted = list(self.run_state_dict())
        if not isinstance(state, dict) or set(state) != set(wanted):
            got = list(state) if isinstance(state, dict) else type(state).__name__
            raise ValueError(f"hidden_state: the saved state holds {got}; wanted {wanted}")
        self._rows.load_state_dict({**state, "tree": self._owned(state["tree"])})
        self._like, self._lists = self._owned(state["like"]), state["lists"]

    # ------------------------------------------------------------------ calling the model
    def _accepts(self, key: str) -> bool:
        return self._any or key in self._accepted

    def _unrolls(self, data: dict, kwargs: dict) -> bool | None:
        """Whether the call is an unroll; None where only the network knows."""
        if "inference" in kwargs:
            return not kwargs["inference"]
        return True if self._default is None and data.get("enable_fast_timestep") else self._default

    def _must_step(self, timesteps: list[int] | None) -> bool:
        return not self._accepts("inference") or (timesteps is not None and not any(map(self._accepts, TIMESTEPS)))

    def _overlooks_cut(self, data: dict, state: Any, kwargs: dict) -> bool:
        """Whether the data have a cut that a network which unrolls by itself takes no notice of; asked once."""
        cut = data.get("cut")
        if cut is None or self._heeds_cut:
            return False
        if self._heeds_cut is None:
            steps, n = leading_shape(data["obs"], 2)
            inputs = {key: value for key, value in data.items() if key != "cut"}
            row = {key: tree_map(lambda x: _at(x, 0, (steps, n)), value) for key, value in inputs.items()}

            def call(inputs: dict[str, Any], state: Any, inference: bool) -> Any:
                return self._call(inputs, state, n, {**kwargs, "inference": inference})[1]

            if self._initial(n) is None:  # nothing is known of a state before the first one was seen
                call(row, state, True)
            self._heeds_cut = begins_anew(self._net, call, row, self._initial(n))
            if not self._heeds_cut:
                warn_once(f"cut {self._name()}", f"hidden_state: the network ({self._name()}) {OVERLOOKS}")
        return not self._heeds_cut and bool((torch.as_tensor(cut) == 0).any())

    def _expected(self, obs: Any, columns: list[int] | None, unroll: bool | None) -> int | None:
        """Rows of the call, None where only the model knows. Raises ValueError where the observation has others."""
        rows = self._rows
        wanted = len(columns) if columns is not None else rows.count if rows.tree is not None else None
        if unroll is None:
            return wanted
        axis = 1 if unroll else 0
        n = obs.shape[axis] if hasattr(obs, "shape") and obs.ndim > axis else leading_shape(obs, axis + 1)[axis]
        if columns is None and wanted is not None and wanted < n and not rows.told:
            rows.grow(n)
            wanted = n
        if wanted in (None, n):
            return n
        what = f"there are states of {wanted} columns" if columns is None else f"data_id names {wanted} columns"
        raise ValueError(
            f"hidden_state: {what}, the observation has {n} rows; wanted as many: name the columns of the rows by "
            "data_id, or call reset() or reset(state=...) first"
        )

    def _called(
        self, data: dict, state: Any, n: int | None, timesteps: list[int] | None, kwargs: dict
    ) -> tuple[dict, Any]:
        if timesteps is None:
            return self._call(data, state, n, kwargs)
        if kwargs["inference"]:
            raise ValueError(f"hidden_state: {TIMESTEPS[0]} is given for one step; wanted an unroll, inference=False")
        kwargs[next(filter(self._accepts, TIMESTEPS))] = timesteps
        output, state = self._call(data, state, n, kwargs)
        found = [output[key] for key in SAVED if key in output]
        if not found:
            raise KeyError(
                f"hidden_state: {TIMESTEPS[0]} is {timesteps} and the network ({self._name()}) gives {list(output)}; "
                f"wanted '{SAVED[0]}', a list of states"
            )
        output.update(dict.fromkeys(SAVED, found[0]))
        return output, state

    def _stepped(self, data: dict, state: Any, timesteps: list[int] | None, kwargs: dict) -> tuple[dict, Any]:
        """An unroll `[T, B, ...]` step by step; where `cut [T, B]` is 0 the next step begins at the initial state."""
        steps, n = leading_shape(data["obs"], 2)
        if not steps or any(not 0 <= k <= steps for k in timesteps or ()):
            raise ValueError(
                f"hidden_state: an unroll of {steps} steps with {TIMESTEPS[0]}={timesteps}; wanted at least one step "
                "and numbers from 0 to that of the steps"
            )
        inputs, kwargs = dict(data), {**kwargs, "inference": True}
        cut = inputs.pop("cut", None)
        states, outputs = [state], []
        for t in range(steps):
            row = {key: tree_map(lambda x, t=t: _at(x, t, (steps, n)), value) for key, value in inputs.items()}
            output, state = self._call(row, state, n, kwargs)
            if cut is not None:
                going_on = torch.as_tensor(cut[t]) != 0  # [B]
                state = tree_map(lambda s, first, on=going_on: _select(on, s, first), state, self._initial(n))
            outputs.append(output)
            states.append(state)
        joined = tree_map(lambda *xs: torch.stack(xs) if isinstance(xs[0], torch.Tensor) else list(xs), *outputs)
        if timesteps is not None:
            states[0] = self._initial(n) if states[0] is None else states[0]
            saved = [states[k] for k in timesteps]
            joined.update(dict.fromkeys(SAVED, saved))
        return joined, state

    def _call(self, data: dict, state: Any, n: int | None, kwargs: dict) -> tuple[dict, Any]:
        """One call of the model: its output without `next_state`, and that as a tree, with its gradient."""
        given = state
        if state is not None and (type(self._net) in _LIST_MODELS if self._lists is None else self._lists):
            given = [tree_index(state, b) for b in range(row_count(state))]
        output = self._model.forward({**data, "prev_state": given}, **kwargs)
        after = output.pop("next_state", None)
        if after is None:
            raise KeyError(
                f"hidden_state: the network ({self._name()}) gives {list(output)}; wanted 'next_state' too, the state "
                "after the step, which comes as 'prev_state' with the next; without a state leave 'hidden_state' out"
            )
        self._lists = type(after) is list
        if self._lists:
            _LIST_MODELS.add(type(self._net))
            after = self._stacked(after)
        check_rows(after, n, self._what)
        if self._like is None:
            if state is not None:
                check_form(after, state, self._what)
            self._like = tree_map(lambda leaf: torch.zeros_like(leaf[:1]).detach(), after)
        return output, after

    def _name(self) -> str:
        return type(self._net).__name__

    # ------------------------------------------------------------------ forms of a state
    def _initial(self, n: int, example: Any = None) -> Any:
        """The initial state of n columns; zeros like the example, or None, where nothing is known of it."""
        known = self._known(n)
        example = self._rows.tree if example is None else example
        return tree_map(lambda leaf: leaf.new_zeros((n, *leaf.shape[1:])), example) if known is None else known

    def _known(self, n: int) -> Any:
        one = self._init_fn()
        if one is not None:
            return tree_map(lambda leaf: leaf.expand(n, *leaf.shape).contiguous(), self._owned(one))
        if self._rows.leaf is np.ndarray:
            return self._net.numpy_initial_state(n)
        make = getattr(self._net, "initial_state", None)
        if make is None:
            return tree_map(lambda leaf: leaf.new_zeros((n, *leaf.shape[1:])), self._like)
        state = make(n)
        if self._lists is None:
            self._lists = type(state) is list
        return self._owned(self._stacked(state) if type(state) is list else state)

    def _given(self, state: Any, n: int | None) -> Any:
        """A user's state as a tree of our own with n rows (any number for None); None for the initial one."""
        known = self._known(1)
        if type(state) is list:
            if not state or n not in (None, len(state)):
                raise ValueError(
                    f"hidden_state: the list given to reset has {len(state)} states; wanted {n or 'at least 1'}"
                )
            if self._lists is None:
                self._lists = True
            state = self._stacked(state)
            if state is None:
                return None
        tree = self._owned(state)
        what = "the state given to reset"
        check_rows(tree, n, what)
        if known is None:
            return tree
        check_form(tree, known, what)
        return tree_map(lambda leaf, like: leaf.to(torch.as_tensor(like).dtype), tree, known)

    def _stacked(self, rows: list) -> Any:
        """A list of B states as one tree; a None is the initial state. None where all are."""
        there = [row for row in rows if row is not None]
        if not there:
            return None
        try:
            if len(there) < len(rows):
                first = self._initial(1, tree_map(lambda leaf: torch.as_tensor(leaf)[None], there[0]))
                rows = [tree_index(first, 0) if row is None else row for row in rows]
            return tree_stack([tree_map(torch.as_tensor, row) for row in rows])
        except (ValueError, RuntimeError, TypeError) as err:
            raise ValueError(f"hidden_state: a list of states wants rows of one form: {err}") from err

    def _owned(self, tree: Any) -> Any:
        """A detached copy of the tree, on the network's device."""
        parameter = next(iter(self._net.parameters()), None)

        def leaf(x: Any) -> torch.Tensor:
            try:
                tensor = torch.as_tensor(x).detach()
                return tensor.clone() if parameter is None else tensor.to(device=parameter.device, copy=True)
            except (TypeError, RuntimeError, ValueError) as err:
                raise ValueError(
                    f"hidden_state: a state holds a {type(x).__name__}; wanted arrays or tensors [B, ...], in a dict "
                    "or tuple, or a list of B such states"
                ) from err

        return tree_map(leaf, tree)


def _take_timesteps(kwargs: dict) -> list[int] | None:
    """Takes `saved_hidden_state_timesteps` out of the keywords, which then speak of an unroll."""
    timesteps = None
    for key in TIMESTEPS:
        if key in kwargs:
            timesteps = kwargs.pop(key)
    if timesteps is None:
        return None
    kwargs.setdefault("inference", False)
    return list(timesteps)


def _at(leaf: Any, t: int, lead: tuple[int, int]) -> Any:
    """Step t of a leaf that has time and columns, other leaves as they are."""
    return leaf[t] if tuple(getattr(leaf, "shape", ())[:2]) == lead else leaf


def _select(mask: torch.Tensor, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Rows of `one` where `mask [B]`, else of `other`."""
    return torch.where(mask.view(-1, *[1] * (one.ndim - 1)), one, other)


def _recordable(leaf: torch.Tensor) -> torch.Tensor:
    return leaf.clone() if leaf.is_inference() else leaf  # autograd saves no tensor made in inference mode
