"""The base policy: everything that does not differ between algorithms.

A policy of your own overrides `config`, `default_model`, `_init_learn`, `_init_collect`, `_init_eval`,
`_forward_learn`, `_process_transition` and, where it wants other items than n-step transitions, `_get_train_sample`.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from ding_like.config.cfg_dict import CfgDict
from ding_like.config.checks import Check, at_least, fraction, not_negative, one_of, optional, positive
from ding_like.config.merge import deep_merge_defaults
from ding_like.config.paths import ConfigError
from ding_like.data import ArrayDict, Block, leading_shape, tree_map
from ding_like.model.build import make_model
from ding_like.model.normalizer import NormalizedModel
from ding_like.model.wrapper.model_wrappers import ModelWrapper
from ding_like.policy.acting import Acting
from ding_like.policy.common_utils import default_preprocess_learn, per_env
from ding_like.policy.deploy import policy_recipe
from ding_like.policy.interface import Interface, untouched
from ding_like.policy.modes import collect_function, eval_function, learn_function
from ding_like.policy.schedules import epsilon_schedule, lr_schedule
from ding_like.rl_utils.adder import get_nstep_return_data

FIELDS = ("learn", "collect", "eval")


class Policy:
    """One network seen in up to three modes: learn, collect, eval.

    Args:
        cfg: the compiled `policy` section.
        model: a network to use in place of the configured one.
        enable_field: the modes to initialise, of 'learn', 'collect', 'eval'; None means all.
        seed: keys the exploration noise.
        shapes: what follows from the env's spaces; the model gets the arguments that it takes.

    Attributes:
        interface: what the env gives and takes; None where `shapes` does not tell.
    """

    config: dict = dict(
        cuda=False,  # train and act on the GPU
        discount_factor=0.99,  # gamma
        nstep=1,  # rewards summed before the bootstrap
        random_collect_size=0,  # env steps with uniformly random actions before the first update
        norm_obs=dict(
            use_norm=False,  # normalise vector observations by running mean and variance
            clip=10.0,  # normalised observations are cut to [-clip, clip]
        ),
        model={},  # constructor arguments of the network; `type` and `import_names` replace the default network
        learn=dict(
            update_per_collect=1,  # gradient steps after each collect
            batch_size=64,  # samples of one gradient step
            learning_rate=1e-3,  # step size
            optimizer="adam",  # adam, adamw, rmsprop or sgd
            grad_clip_norm=None,  # largest total gradient norm; None does not clip
            lr_schedule=dict(
                type=None,  # learning rate over env steps: None (constant), linear or exp
                end=0.0,  # its value in the end
                decay=100000,  # env steps: the length of linear, the time constant of exp
            ),
        ),
        collect=dict(
            n_sample=8,  # train samples of one collect; whole rows of all env columns, extras count for the next
            n_step=None,  # env steps of one collect; where it is set it goes before n_sample; the same whole rows
            traj_len_inf=False,  # `_get_train_sample` of a policy of your own gets whole trajectories, not rows
            max_traj_len=10000,  # longest of them: an episode that is still open then is handed on in parts
        ),
        eval={},
        other={},
    )
    config_checks: dict[str, Check | None] = {
        "discount_factor": fraction,
        "nstep": at_least(1),
        "random_collect_size": at_least(0),
        "norm_obs.clip": positive,
        "learn.update_per_collect": at_least(1),
        "learn.batch_size": at_least(1),
        "learn.learning_rate": positive,
        "learn.optimizer": one_of("adam", "adamw", "rmsprop", "sgd"),
        "learn.grad_clip_norm": optional(positive),
        "learn.lr_schedule.type": one_of(None, "linear", "exp"),
        "learn.lr_schedule.end": not_negative,
        "learn.lr_schedule.decay": at_least(1),
        "collect.n_sample": at_least(1),
        "collect.n_step": optional(at_least(1)),
        "collect.max_traj_len": at_least(1),
    }
    """Ranges by path below `policy`, added to those of the parents; None lifts one. A default passes in any case."""
    action_spaces: tuple[str, ...] = ("Discrete", "MultiDiscrete", "MultiBinary", "Box")
    """Names of the action spaces it serves."""
    stores: tuple[str, ...] = ("replay",)
    """Registered names of the stores it can train from, the default first."""
    learn_parts = {"target_model": "_target_model", "optimizer": "_optimizer"}
    """By their names in the learner's state: attributes with a `state_dict` of their own."""
    _learn_model: Any
    _collect_model: Any
    _eval_model: Any
    train_mode = True
    """Whether dropout and batch-norm are on while learning."""
    per_env_transition = False
    """True calls `_process_transition` once per env column with scalars (slow)."""
    per_column_trajectory: bool | str = False
    """True is `collect.traj_len_inf` for good; 'list': a trajectory is a list of L dictionaries (slow)."""

    @classmethod
    def default_config(cls) -> CfgDict:
        """The `config` of the class merged over those of its parents."""
        layers = [vars(c)["config"] for c in reversed(cls.__mro__) if "config" in vars(c)]
        return deep_merge_defaults(*layers)

    def __init__(
        self,
        cfg: Any,
        model: nn.Module | None = None,
        enable_field: list[str] | tuple[str, ...] | None = None,
        seed: int = 0,
        shapes: dict[str, Any] | None = None,
    ) -> None:
        if model is not None and not isinstance(model, nn.Module):
            raise TypeError(f"model is {model!r}; wanted a torch module (an object, not its class or name)")
        self._cfg = cfg
        self._shapes = dict(shapes or {})
        self._own_model = model is not None
        self.interface = Interface(self._shapes["interface"]) if "interface" in self._shapes else None
        self._seed = seed
        self._cuda = bool(cfg.cuda)
        if self._cuda and not torch.cuda.is_available():
            raise ConfigError("policy.cuda is True and torch finds no GPU; set policy.cuda=False")
        self._device = torch.device("cuda" if self._cuda else "cpu")
        self._gamma = float(cfg.discount_factor)
        self._nstep = int(cfg.nstep)
        self._batch_size = int(cfg.learn.batch_size)
        self._check_numbers()
        self._model = self._normalised(model if model is not None else self._make_model()).to(self._device)
        self._acting = Acting(self._model, self._device, seed, self._shapes)
        self._noises = self._acting.noises
        self._envstep = 0  # of the learner
        self._memory: dict[str, Any] = {}  # hidden states of `act`
        self._lr_fn = lr_schedule(cfg.learn)
        self._eps_fn = epsilon_schedule(cfg.other.get("eps"))
        fields = FIELDS if enable_field is None else tuple(enable_field)
        unknown = [f for f in fields if f not in FIELDS]
        if unknown:
            raise ValueError(f"enable_field holds {unknown}; wanted some of {list(FIELDS)}")
        for field in fields:
            getattr(self, f"_init_{field}")()

    # ------------------------------------------------------------------ to be written by an algorithm
    def default_model(self) -> tuple[str, list[str]]:
        """The registered name of the default network and the modules that register it."""
        raise NotImplementedError(f"{type(self).__name__} has no default_model; add one or set policy.model.type")

    def _init_learn(self) -> None:
        raise NotImplementedError(f"{type(self).__name__} has no _init_learn")

    def _init_collect(self) -> None:
        raise NotImplementedError(f"{type(self).__name__} has no _init_collect")

    def _init_eval(self) -> None:
        raise NotImplementedError(f"{type(self).__name__} has no _init_eval")

    def _forward_learn(self, data: ArrayDict) -> dict[str, Any]:
        """One update from fields `[N, ...]`. Returns what to log; `priority [N]` goes to the store."""
        raise NotImplementedError(f"{type(self).__name__} has no _forward_learn")

    def _process_transition(self, obs: Any, model_output: ArrayDict, timestep: Any) -> dict[str, Any]:
        """What one step stores: fields `[B, ...]`."""
        raise NotImplementedError(f"{type(self).__name__} has no _process_transition")

    # ------------------------------------------------------------------ the same for most algorithms
    def _get_train_sample(self, data: Block) -> Any:
        """Items of a block of rows `[L, B]`; by default n-step transitions with summed rewards."""
        return get_nstep_return_data(data, self._nstep, cum_reward=True, gamma=self._gamma)

    def _forward_collect(self, obs: Any, data_id: Any = None, **setting: Any) -> ArrayDict:
        """Exploring actions for observations `[B, ...]`. Returns the model's output as NumPy fields `[B, ...]`."""
        return self._act("collect", self._collect_model, obs, data_id, setting)

    def _forward_random(self, obs: Any) -> ArrayDict:
        """Uniformly random actions, for `random_collect_size`; the network is not asked.

        A policy whose `_process_transition` needs more of the model's output overrides this.
        """
        return self._acting.random(obs)

    def _forward_eval(self, obs: Any, data_id: Any = None) -> ArrayDict:
        """Deterministic actions for observations `[B, ...]`."""
        return self._act("eval", self._eval_model, obs, data_id, {})

    def _reset_learn(self, data_id: Any = None) -> None:
        self._reset("_learn_model", data_id)

    def _reset_collect(self, data_id: Any = None) -> None:
        self._reset("_collect_model", data_id)

    def _reset_eval(self, data_id: Any = None) -> None:
        if data_id is None:  # an evaluation starts: the same noise each time
            self._noises.pop("eval", None)
        self._reset("_eval_model", data_id)

    def _get_setting_collect(self, envstep: int) -> dict[str, Any]:
        """Keywords of `_forward_collect` at this env step: epsilon, where `other.eps` has a schedule."""
        return {} if self._eps_fn is None else {"eps": self._eps_fn(envstep)}

    def _get_carry(self) -> int:
        """Rows at a block's end that wait for their future and come again in the next block."""
        return self._nstep - 1

    def _get_windows(self) -> dict[str, Any] | None:
        """Arguments of the `WindowStream` that makes the train samples; None: `_get_train_sample` makes them."""
        return None

    def _get_trajectories(self) -> dict[str, Any] | None:
        """Arguments of the `TrajectoryStream` that feeds `_get_train_sample`; None: it gets blocks of rows."""
        collect, whole = self._cfg.collect, self.per_column_trajectory
        wanted = whole or collect.get("traj_len_inf", False)
        return {"longest": int(collect.get("max_traj_len", 10000)), "as_list": whole == "list"} if wanted else None

    def _get_sample_len(self) -> int:
        """Rows of one env column that a train sample is made of."""
        return 1

    def _get_time_major(self) -> bool:
        """Whether `_forward_learn` takes windows, as fields `[U, N, ...]`."""
        return self._get_windows() is not None

    def _get_updates(self) -> int:
        """What the store is asked for after each collect: gradient steps (of a replay), epochs (of a rollout)."""
        return int(self._cfg.learn.update_per_collect)

    def _get_norm_obs(self) -> bool:
        return isinstance(self._model, NormalizedModel)

    def _observe(self, obs: Any) -> None:
        """Take collected observations `[T, B, ...]` into the normaliser, if there is one."""
        if isinstance(self._model, NormalizedModel):
            self._model.update(obs)

    def _data_preprocess_learn(self, data: Any) -> Any:
        """A collated tree passes unchanged; a list of dictionaries (DI-engine's form) is collated."""
        return default_preprocess_learn(data) if isinstance(data, list) else data

    def _state_dict_learn(self) -> dict[str, Any]:
        """The network and the `learn_parts` that there are; copies."""
        parts = {key: getattr(self, name) for key, name in self.learn_parts.items() if hasattr(self, name)}
        return tree_map(_detached, {key: part.state_dict() for key, part in {"model": self._model, **parts}.items()})

    def _load_state_dict_learn(self, state: dict[str, Any]) -> None:
        self._model.load_state_dict(state["model"])
        for key, name in self.learn_parts.items():
            if hasattr(self, name) and key in state:
                getattr(self, name).load_state_dict(state[key])

    def _state_dict_collect(self) -> dict[str, Any]:
        return {"model": tree_map(_detached, self._model.state_dict())}

    def _load_state_dict_collect(self, state: dict[str, Any]) -> None:
        self._model.load_state_dict(state["model"])

    def _optimise(self, optimizer: Any, loss: torch.Tensor, share: float = 1.0) -> torch.Tensor:
        """Zero, backward, step at a share of the scheduled learning rate. Returns the gradient norm."""
        if self._lr_fn is not None:
            for group in optimizer.param_groups:
                group["lr"] = share * self._lr_fn(self._envstep)
        optimizer.zero_grad()
        loss.backward()
        return optimizer.step()

    def run_state_dict(self) -> dict[str, Any]:
        """What acting needs beyond the networks to go on exactly: noise streams, hidden states."""
        wrapped = getattr(self, "_collect_model", None)
        rows = wrapped.run_state_dict() if isinstance(wrapped, ModelWrapper) else {}
        return {"noises": self._acting.state_dict(), "wrappers": rows}

    def load_run_state_dict(self, state: dict[str, Any]) -> None:
        """Restore `run_state_dict`."""
        self._acting.load_state_dict(state["noises"])
        if state["wrappers"]:
            self._collect_model.load_run_state_dict(state["wrappers"])

    def get_model(self) -> nn.Module:
        """The network that learns."""
        return self._model

    def act(self, obs: Any, batched: bool = False, reward: Any = None) -> Any:
        """The deterministic action for one observation, both in the env's own form; nothing of the training moves.

        A recurrent policy remembers from call to call until `reset`, which starts an episode. One that uses
        `prev_reward` wants `reward`, what the env gave for the action before; no other looks at it.
        With `batched`, for observations `[B, ...]` actions `[B, ...]`. Raises ValueError naming what does not fit.
        """
        if self.interface is None or not hasattr(self, "_eval_model"):
            raise ValueError("act wants a policy made with its mode 'eval' and the spaces of an env, as runs make them")
        batch = self.interface.with_previous(self.interface.to_batch(obs, batched), reward, batched)
        model = self._model if self._acting.has_train_mode else None
        with untouched(model, self._noises, self._eval_model, self._memory, leading_shape(batch)[0]):
            output = self._forward_eval(batch)
        return self.interface.to_env(output["action"], batched)

    def reset(self) -> None:
        """An episode starts: `act` forgets what it has seen."""
        self._memory.clear()
        if self.interface is not None:
            self.interface.reset()

    def recipe(self) -> dict[str, Any]:
        """What a checkpoint holds beside the weights, for `load_policy`."""
        return policy_recipe(type(self), self._model, self._cfg, self._shapes, self._own_model)

    # ------------------------------------------------------------------ modes
    @property
    def learn_mode(self) -> learn_function:
        """What a learner may do with the policy."""
        return learn_function(
            self._train,
            self._reset_learn,
            self._get_attribute,
            self._set_attribute,
            self._state_dict_learn,
            self._load_state_dict_learn,
        )

    @property
    def collect_mode(self) -> collect_function:
        """What a collector may do with the policy."""
        return collect_function(
            self._forward_collect,
            self._forward_random,
            per_env(self._process_transition) if self.per_env_transition else self._process_transition,
            self._get_train_sample,
            self._reset_collect,
            self._get_setting_collect,
            self._observe,
            self._get_attribute,
            self._set_attribute,
            self._state_dict_collect,
            self._load_state_dict_collect,
        )

    @property
    def eval_mode(self) -> eval_function:
        """What an evaluator may do with the policy."""
        return eval_function(self._forward_eval, self._reset_eval, self._get_attribute, self._set_attribute)

    def _train(self, data: Any) -> dict[str, Any]:
        if self._acting.has_train_mode:
            self._model.train(self.train_mode)
        return self._forward_learn(data)

    def _get_attribute(self, name: str) -> Any:
        """`_get_<name>()` if there is one, else `_<name>`. Raises AttributeError naming the policy."""
        if hasattr(self, "_get_" + name):
            return getattr(self, "_get_" + name)()
        if hasattr(self, "_" + name):
            return getattr(self, "_" + name)
        raise AttributeError(f"{type(self).__name__} has no attribute '{name}'")

    def _set_attribute(self, name: str, value: Any) -> None:
        setattr(self, "_" + name, value)

    # ------------------------------------------------------------------ inner parts
    def _check_numbers(self) -> None:
        checks = {
            "discount_factor": (self._gamma, 0.0 <= self._gamma <= 1.0, "between 0 and 1"),
            "nstep": (self._nstep, self._nstep >= 1, "at least 1"),
            "learn.batch_size": (self._batch_size, self._batch_size >= 1, "at least 1"),
        }
        for key, (value, fine, wanted) in checks.items():
            if not fine:
                raise ConfigError(f"policy.{key} is {value}; wanted {wanted}")

    def _make_model(self) -> nn.Module:
        return make_model(self._cfg.model, self.default_model, self._shapes)

    def _normalised(self, model: nn.Module) -> nn.Module:
        norm = self._cfg.norm_obs
        if not norm.use_norm or isinstance(model, NormalizedModel):
            return model
        return NormalizedModel(model, self._cfg.model.get("obs_shape") or self._shapes["obs_shape"], norm.clip)

    def _act(self, role: str, wrapped: ModelWrapper, obs: Any, data_id: Any, setting: dict) -> ArrayDict:
        return self._acting.act(role, wrapped, obs, data_id, setting)

    def _reset(self, name: str, data_id: Any) -> None:
        model = getattr(self, name, None)
        if isinstance(model, ModelWrapper):
            model.reset(data_id=data_id)


def _detached(x: Any) -> Any:
    return x.detach().clone() if isinstance(x, torch.Tensor) else copy.deepcopy(x)
