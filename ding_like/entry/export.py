"""ONNX: a policy's network, its normaliser and the env's units in one graph, compared with the policy itself."""

from __future__ import annotations

import copy
import importlib
import io
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from ding_like.data import ArrayDict, numpify, tree_leaves, tree_paths
from ding_like.model import model_wrap
from ding_like.model.normalizer import NormalizedModel
from ding_like.policy import Policy
from ding_like.policy.interface import Interface, kept_dtype
from ding_like.policy.recurrence import is_recurrent
from ding_like.rl_utils.action_scale import ActionScale

ROWS = 64  # random observations that the graph is compared on
TOLERANCE = 1e-4  # relative to the largest number of an output; float32 graphs differ by about 1e-6


class ExportError(ValueError):
    """A policy that cannot be exported, or a graph that says something else than it; says what and why."""


def export_onnx(policy: Policy, path: str | os.PathLike) -> dict[str, dict[str, str]]:
    """Write the policy's network in eval mode as ONNX, after comparing it with `policy.act` on random observations.

    Inputs are the arrays of an observation as the env gives them, `obs [B, ...]` or one for each entry by its dotted
    path; float64 ones are float32. Outputs: `action [B, ...]`, what the env takes; `logit`, or `logit.<part>` where it
    has several.

    Returns:
        `inputs` and `outputs`: what each holds by name, such as 'float32 [B, 4]'.

    Raises ImportError naming what to install, ExportError, ValueError for a policy made without spaces.
    """
    if Path(path).is_dir():  # as '' is
        raise ExportError(f"export_onnx: path is {os.fspath(path)!r}; wanted a file to write, not a folder")
    onnxruntime = _packages()
    if policy.interface is None:
        raise ValueError("export_onnx wants a policy made with the spaces of an env, as runs and load_policy make them")
    if is_recurrent(policy.get_model()):
        raise ExportError(
            f"the network ({type(policy.get_model()).__name__}) is recurrent, which export_onnx does not write; use "
            "load_policy, whose act keeps the hidden state"
        )
    rows = _random_rows(policy.interface, policy.get_model())
    net = _Network(policy).eval()
    names = input_names(policy.interface)
    with torch.no_grad():
        action, logit = net(*map(torch.from_numpy, rows))  # also sets what a network decides at its first call
    outputs = ["action", *(f"logit.{key}" if key else "logit" for key, _ in tree_paths(logit))]
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    try:
        _write(net, rows, part, names, outputs)
        session = onnxruntime.InferenceSession(os.fspath(part), providers=["CPUExecutionProvider"])
        wanted = [policy.act(_tree(policy.interface, rows), batched=True), *map(numpify, tree_leaves(logit))]
        for n in (ROWS, 1):
            got = session.run(outputs, {name: row[:n] for name, row in zip(names, rows)})
            _compare(outputs, got, [x[:n] for x in wanted], discrete=policy.interface.action["kind"] != "Box")
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    told = [action.numpy(), *map(numpify, tree_leaves(logit))]
    return {
        "inputs": {name: _describe(row.shape, row.dtype) for name, row in zip(names, rows)},
        "outputs": {name: _describe(x.shape, x.dtype) for name, x in zip(outputs, told)},
    }


def input_names(interface: Interface) -> list[str]:
    """The name of each array of an observation; a name that an output has stands behind 'obs.'."""
    paths = [path for path, _ in interface.leaves]
    return [f"obs.{p}" if p == "action" or p.split(".")[0] == "logit" else p or "obs" for p in paths]


class _Network(nn.Module):
    """Arrays of an observation to `(action, logit)`, on the CPU and apart from the policy, with nothing that moves."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        assert policy.interface is not None
        self.net = copy.deepcopy(policy.get_model()).cpu()
        if isinstance(self.net, NormalizedModel):
            self.net.statistics = nn.ModuleList(_Frozen(one, self.net.eps) for one in self.net.statistics)
        self._wrapped = model_wrap(self.net, "base")
        self._interface, self._action = policy.interface, policy.interface.action
        self._squash = getattr(policy._eval_model, "squash", False)

    def forward(self, *leaves: torch.Tensor) -> tuple[torch.Tensor, Any]:
        pairs = zip(leaves, self._interface.leaves)
        moved = [x - torch.tensor(leaf["start"]) if "start" in leaf else x for x, (_, leaf) in pairs]
        logit = self._wrapped.forward(_tree(self._interface, moved), mode="compute_actor")["logit"]
        return self._to_env(logit), logit

    def _to_env(self, logit: Any) -> torch.Tensor:
        action = self._action
        dtype = getattr(torch, action["dtype"])
        if isinstance(logit, dict):
            scale = ActionScale(action["low"], action["high"], action["dtype"])
            half, middle, low, high = map(torch.from_numpy, (scale.half, scale.middle, scale.low, scale.high))
            mu = torch.tanh(logit["mu"]) if self._squash else logit["mu"]
            x = mu.double() * half + middle  # in float64, as ActionScale
            x = x if dtype.is_floating_point else torch.round(x)
            return torch.maximum(torch.minimum(x, high), low).to(dtype).reshape(-1, *scale.shape)
        if isinstance(logit, tuple):
            best = torch.stack([part.argmax(-1) for part in logit], -1)
        else:
            best = logit.argmax(-1)
        return (best + torch.tensor(action.get("start", 0))).to(dtype)


class _Frozen(nn.Module):
    """`RunningStatistics` as two constants."""

    def __init__(self, statistics: Any, eps: float) -> None:
        super().__init__()
        mean, scale = statistics.scaling(eps)
        self.mean, self.scale = nn.Buffer(mean.clone()), nn.Buffer(scale.clone())

    def forward(self, x: torch.Tensor, eps: float, clip: float) -> torch.Tensor:
        return ((x.float() - self.mean) * self.scale).clamp(-clip, clip)


def _tree(interface: Interface, leaves: list[Any]) -> Any:
    """An observation tree of its arrays in order."""
    rest = iter(leaves)

    def build(plain: dict[str, Any]) -> Any:
        if "parts" not in plain:
            return next(rest)
        if plain["kind"] == "Dict":
            return ArrayDict({key: build(part) for key, part in plain["parts"].items()})
        return tuple(build(part) for part in plain["parts"])

    return build(interface.plain["obs"])


def _random_rows(interface: Interface, model: nn.Module) -> list[np.ndarray]:
    """`ROWS` observations as their arrays; of a normalised vector, about where its statistics lie."""
    rng, rows = np.random.default_rng(0), []
    for path, leaf in interface.leaves:
        moments = model.moments(path) if isinstance(model, NormalizedModel) else None
        if path == "action_mask":
            rows.append(_random_mask(rng, leaf, interface.action.get("n", 2)))
        else:
            rows.append(_random_leaf(rng, leaf, moments or (0.0, 1.0)))
    return rows


def _random_leaf(rng: np.random.Generator, leaf: dict[str, Any], moments: tuple[Any, Any]) -> np.ndarray:
    shape, dtype = (ROWS, *leaf["shape"]), kept_dtype(leaf)
    if "n" in leaf:
        return (rng.integers(0, leaf["n"], shape) + leaf["start"]).astype(dtype)
    low, high = leaf.get("range", (0, 1))  # a MultiBinary has none
    if dtype.kind != "f":
        bottom = int(max(low, -100))
        return rng.integers(bottom, int(min(high, bottom + 255)), shape, endpoint=True).astype(dtype)
    if len(shape) == 4:  # images
        return (max(low, 0.0) + (min(high, 1.0) - max(low, 0.0)) * rng.random(shape)).astype(dtype)
    return np.clip(moments[0] + moments[1] * rng.standard_normal(shape), low, high).astype(dtype)


def _random_mask(rng: np.random.Generator, leaf: dict[str, Any], n: int | list[int]) -> np.ndarray:
    """Half of the actions allowed, one of each choice at least."""
    if leaf["shape"] != [int(np.sum(n))]:  # of a MultiBinary, which has no n
        n = [2] * (leaf["shape"][0] // 2)
    parts = [rng.random((ROWS, size)) for size in ([n] if isinstance(n, int) else n)]
    allowed = [part >= np.minimum(0.5, part.max(1, keepdims=True)) for part in parts]
    return np.concatenate(allowed, 1).astype(kept_dtype(leaf))


def _write(net: nn.Module, rows: list[np.ndarray], path: Path, names: list[str], outputs: list[str]) -> None:
    batch = torch.export.Dim("B")
    example = tuple(map(torch.from_numpy, rows))
    try:
        with _quiet():
            torch.onnx.export(
                net,
                example,
                path,
                input_names=names,
                output_names=outputs,
                dynamic_shapes=(tuple({0: batch} for _ in rows),),
                dynamo=True,
                external_data=False,
                verbose=False,
            )
    except torch.onnx.OnnxExporterError as err:
        cause = err.__cause__ or err
        reason = next((line for line in str(cause).splitlines() if line.strip()), type(cause).__name__)
        raise ExportError(f"the network ({type(net.net).__name__}) cannot be exported to ONNX: {reason}") from err


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's notes on its own work."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        silence = io.StringIO()
        with warnings.catch_warnings(), redirect_stdout(silence), redirect_stderr(silence):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _compare(names: list[str], got: list[np.ndarray], wanted: list[np.ndarray], discrete: bool) -> None:
    """Raises ExportError naming the first output that differs. Discrete actions are equal, but where two are equally
    good to rounding.
    """
    for name, mine, other in zip(names, got, wanted):
        if mine.shape != other.shape or mine.dtype != other.dtype:
            raise ExportError(
                f"the exported graph gives {name} as {_describe(mine.shape, mine.dtype)}, the policy as "
                f"{_describe(other.shape, other.dtype)}"
            )
        if name == "action" and discrete:
            differs = _clearly_other(mine, other, wanted[1:])
        else:
            room = TOLERANCE * max(1.0, float(np.abs(other).max())) + (other.dtype.kind != "f")
            differs = np.abs(mine.astype(np.float64) - other) > room
        if differs.any():
            at = tuple(np.argwhere(differs)[0])
            raise ExportError(
                f"the exported graph gives {name} {mine[at]} where the policy gives {other[at]} ({differs.sum()} of "
                f"{differs.size} numbers on random observations): it acts in a way that a graph of its network does "
                "not show"
            )


def _clearly_other(mine: np.ndarray, other: np.ndarray, logits: list[np.ndarray]) -> np.ndarray:
    """Where actions differ that are not equally good by the logits, one `[B, A]` for each action."""
    differs = mine != other
    for i, logit in enumerate(logits):
        best = np.partition(logit, -2, -1) if logit.shape[-1] > 1 else np.repeat(logit, 2, -1)
        tied = best[:, -1] - best[:, -2] <= TOLERANCE * np.maximum(1.0, np.abs(best[:, -1]))
        if differs.ndim == 1:
            differs &= ~tied
        else:
            differs[:, i] &= ~tied
    return differs


def _describe(shape: tuple[int, ...], dtype: Any) -> str:
    return f"{np.dtype(dtype).name} [{', '.join(['B', *map(str, shape[1:])])}]"


def _packages() -> Any:
    for name in ("onnx", "onnxscript", "onnxruntime"):
        try:
            package = importlib.import_module(name)
        except ImportError as err:
            raise ImportError(f"export to ONNX needs the package {name}: pip install 'ding_like[onnx]'") from err
    return package
