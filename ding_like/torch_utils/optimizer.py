"""Optimisers over flat parameters: one tensor, one set of kernel calls, whatever the number of layers.

What it saves is the per-parameter Python; `benchmarks/dqn.py` times an update with a flat Adam and with Adam over the
layers.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any

import torch
from torch import nn
from torch.optim import optimizer as hooks

from ding_like.utils.registry import suggest


def _light(cls: type[torch.optim.Optimizer]) -> type[torch.optim.Optimizer]:
    """The optimiser without the wrappers that import `torch._dynamo` (over a second, for `torch.compile` alone) when
    one is made, saved or loaded.
    """
    names = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")
    light = {name: inspect.unwrap(getattr(cls, name)) for name in names}
    return type(cls.__name__, (cls,), {**light, "bare_step": torch.no_grad()(inspect.unwrap(cls.step))})


OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": _light(torch.optim.Adam),
    "adamw": _light(torch.optim.AdamW),
    "rmsprop": _light(torch.optim.RMSprop),
    "sgd": _light(torch.optim.SGD),
}
FUSED = ("adam", "adamw")


def _has_hooks(torch_optimizer: torch.optim.Optimizer) -> bool:
    """Whether somebody wants to be told of steps, which only `Optimizer.step` does."""
    return bool(
        torch_optimizer._optimizer_step_pre_hooks
        or torch_optimizer._optimizer_step_post_hooks
        or hooks._global_optimizer_pre_hooks
        or hooks._global_optimizer_post_hooks
    )


class FlatOptimizer:
    """A torch optimiser whose only parameter is the concatenation of many.

    Each parameter's data and gradient become views of one tensor each, so modules, state dicts and `backward` work as
    before. Gradients are zeroed in place, never set to None. A deep copy belongs to the parameters copied with it.

    Args:
        parameters: parameters of one dtype on one device.
        type_: 'adam', 'adamw', 'rmsprop' or 'sgd'.
        grad_clip_norm: the largest total gradient norm; None does not clip.
        kwargs: passed to the torch optimiser.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        type_: str = "adam",
        lr: float = 1e-3,
        grad_clip_norm: float | None = None,
        **kwargs: Any,
    ) -> None:
        self._params = list(dict.fromkeys(p for p in parameters if p.requires_grad))
        if not self._params:
            raise ValueError("the model has no parameter to train")
        if len({(p.dtype, p.device) for p in self._params}) > 1:
            raise ValueError("parameters of several dtypes or devices cannot share one optimiser; make one for each")
        if type_ not in OPTIMIZERS:
            raise ValueError(
                f"optimiser type is {type_!r}; wanted one of {list(OPTIMIZERS)}.{suggest(type_, OPTIMIZERS)}"
            )
        self.grad_clip_norm = grad_clip_norm
        if type_ in FUSED:
            kwargs.setdefault("fused", True)
        self._type, self._kwargs = type_, {"lr": lr, **kwargs}
        self._flatten()

    def _flatten(self) -> None:
        """Move data and gradients of the parameters into one tensor each, and make the torch optimiser of them."""
        self._flat = nn.Parameter(torch.cat([p.detach().reshape(-1) for p in self._params]))
        self._grad = self._flat.grad = torch.zeros_like(self._flat)
        self._grads: list[torch.Tensor] = []
        offset = 0
        for p in self._params:
            span = slice(offset, offset + p.numel())
            p.data = self._flat.data[span].view(p.shape)
            self._grads.append(self._grad[span].view(p.shape))
            offset += p.numel()
        self._last = (offset - self._params[-1].numel()) * self._flat.element_size()  # bytes before the last parameter
        self._zeroed = -1  # version of the gradients when they were zeroed last
        self._bind_grads()
        self.torch_optimizer = OPTIMIZERS[self._type]([self._flat], **self._kwargs)

    def __deepcopy__(self, memo: dict) -> FlatOptimizer:
        twin = object.__new__(type(self))
        memo[id(self)] = twin
        twin._params = deepcopy(self._params, memo)  # those of the model's copy, where it is copied along
        twin.grad_clip_norm, twin._type, twin._kwargs = self.grad_clip_norm, self._type, dict(self._kwargs)
        twin._flatten()
        twin.torch_optimizer.load_state_dict(deepcopy(self.torch_optimizer.state_dict()))
        return twin

    @property
    def param_groups(self) -> list[dict]:
        """The torch optimiser's parameter groups (one)."""
        return self.torch_optimizer.param_groups

    def _bind_grads(self) -> None:
        for p, g in zip(self._params, self._grads):
            if p.grad is None:  # it took no part in this loss; what stands in `g` is from an older one
                g.zero_()
            elif p.grad is not g:
                g.copy_(p.grad)
            p.grad = g

    def zero_grad(self) -> None:
        """All gradients to zero, in place."""
        self._grad.zero_()
        self._zeroed = self._grad._version

    def step(self) -> torch.Tensor:
        """Clip, then one step. Returns the total gradient norm before clipping (a scalar tensor).

        Raises RuntimeError when the model's parameters have left this optimiser.
        """
        for p, g in zip(self._params, self._grads):
            if p.grad is not g:  # somebody replaced a gradient (zero_grad(set_to_none=True), a hook)
                self._bind_grads()
                break
        self._check_bound()
        grad = self._grad
        norm = torch.linalg.vector_norm(grad)
        if self.grad_clip_norm is not None:
            grad.mul_((self.grad_clip_norm / (norm + 1e-6)).clamp_(max=1.0))
        self._apply()
        return norm

    def _apply(self) -> None:
        """The torch optimiser's step. For fused Adam by its kernel on the optimiser's own state, without the
        bookkeeping of `Optimizer.step`, which costs more than the kernel for a small network; for others by the
        optimiser's own step without its wrappers.
        """
        torch_optimizer: Any = self.torch_optimizer
        group, state = torch_optimizer.param_groups[0], torch_optimizer.state[self._flat]
        if _has_hooks(torch_optimizer):
            torch_optimizer.step()
            return
        if self._type != "adam" or not group["fused"] or group["amsgrad"]:
            torch_optimizer.bare_step()
            return
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=self._flat.device)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(self._grad), torch.zeros_like(self._grad)
        beta1, beta2 = group["betas"]
        with torch.no_grad():
            state["step"] += 1
            torch._fused_adam_(
                [self._flat],
                [self._grad],
                [state["exp_avg"]],
                [state["exp_avg_sq"]],
                [],
                [state["step"]],
                amsgrad=False,
                lr=group["lr"],
                beta1=beta1,
                beta2=beta2,
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                maximize=group["maximize"],
            )

    def _check_bound(self) -> None:
        """The data of the parameters still lies here, and backward still reaches their gradients."""
        start = self._flat.data_ptr()
        if self._params[0].data_ptr() != start or self._params[-1].data_ptr() != start + self._last:
            what = "the parameters were given other memory (model.to(), .double(), .half(), or p.data = ...)"
        elif self._grad._version == self._zeroed:
            what = (
                "no gradient has reached a parameter since zero_grad() (the model got other parameter objects, as by "
                "load_state_dict(assign=True), or backward() was not called)"
            )
        else:
            return
        raise RuntimeError(
            f"this step would not move the model: {what}. Load and write parameters in place, or make a new "
            "FlatOptimizer of the model's present parameters"
        )

    def state_dict(self) -> dict:
        """`type`, and the torch optimiser's state (moments as one flat tensor, in the order of the parameters)."""
        return {"type": self._type, **self.torch_optimizer.state_dict()}

    def load_state_dict(self, state: dict) -> None:
        """Restore `state_dict`. Raises ValueError when it is of another optimiser or number of parameters."""
        if state.get("type") != self._type:
            raise ValueError(
                f"the optimiser state is of type {state.get('type')!r}, this optimiser of type {self._type!r}; "
                "take the same type (policy.learn.optimizer), or load the model's weights alone"
            )
        for entry in state.get("state", {}).values():
            for key, value in entry.items():
                if torch.is_tensor(value) and value.dim() == 1 and value.numel() != self._flat.numel():
                    raise ValueError(
                        f"the optimiser state '{key}' holds {value.numel()} numbers; this model has "
                        f"{self._flat.numel()} parameters"
                    )
        kept = {key: value for key, value in state.items() if key != "type"}
        self.torch_optimizer.load_state_dict(deepcopy(kept))  # torch would go on with the very tensors of the state
