"""Training in one process."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from ding_like.config import CfgDict, ConfigError
from ding_like.entry.build import Components, build, choose_seed, full_config
from ding_like.entry.loop import Moment, SyncLoop
from ding_like.entry.resume import ResumePoints, find_run, load_run_state, run_of_config, run_state
from ding_like.entry.run_folder import CONFIG_FILE, RunFolder, RunFolderError
from ding_like.entry.sampling import choose_sampler
from ding_like.entry.stop import StopRequest, exit_is_an_error, stop_requests
from ding_like.policy import Policy
from ding_like.torch_utils.checkpoint import CheckpointError, load_checkpoint, load_model_state, save_checkpoint
from ding_like.torch_utils.mode import torch_threads
from ding_like.utils.log import Logger, get_logger, setup_console
from ding_like.utils.progress import Progress
from ding_like.utils.seed import set_global_seed
from ding_like.worker import Learner, NoCollector
from ding_like.worker.collector.evaluator import of_tasks

UNLIMITED = int(1e10)  # steps, of gradient or env


def serial_pipeline(
    input_cfg: Any,
    seed: int | None = None,
    env_setting: Any = None,
    model: nn.Module | None = None,
    max_train_iter: int = UNLIMITED,
    max_env_step: int = UNLIMITED,
    *,
    sets: tuple[str, ...] | list[str] = (),
    exp_name: str | None = None,
    on_exists: str = "number",
    load_path: str | None = None,
    resume: bool = False,
    mode: str = "serial",
) -> Policy:
    """Train a policy in this process; off-policy: collect, then update from replay, in turn.

    Args:
        input_cfg: a file, a `(main_config, create_config)` tuple or one dictionary.
        seed: of everything random in the run; None takes the config's `seed`, or 0 where it has none (with `resume` the
            run's own).
        env_setting: envs in place of the config's (see `envs.make.make_env_fns`).
        model: a network in place of the config's.
        max_train_iter, max_env_step: limits in gradient and env steps.
        sets: overrides, `'policy.learn.batch_size=64'`.
        exp_name: the run's folder, in place of the config's.
        on_exists: 'number' takes `<exp_name>_1` where the folder exists, 'error' raises.
        load_path: a checkpoint to start from: its weights and, where the optimiser is of the same type, its moments.
            Hyper-parameters are those of this config; counters start at 0.
        resume: go on from the newest resume point of `exp_name` with the config and seed it was started with. Limits
            may be larger than before.
        mode: serial; parallel, where worker processes collect (`policy.collect.collector.sampler`); async, where they
            do so while this process learns.

    Returns:
        The trained policy.

    Raises ConfigError, EnvError, CheckpointError, FloatingPointError (NaN, named), Terminated (SIGTERM), RuntimeError
    where code of the user's calls sys.exit(). On an error, Ctrl-C or SIGTERM the results so far, and a checkpoint if
    the weights are finite, are written before it is raised.
    """
    if resume and exp_name is None:
        exp_name = run_of_config(input_cfg)
    cfg = full_config(input_cfg, sets, exp_name, own_model=model is not None)
    setup_console()
    choose_sampler(cfg, mode)
    point = _read_point(cfg, seed, load_path, on_exists, mode) if resume else None
    if point is not None:  # what `auto` chose
        cfg.policy.collect.collector.sampler = point[1]["config"]["policy"]["collect"]["collector"]["sampler"]
    seed = choose_seed(cfg, seed if point is None else point[1]["seed"])
    with stop_requests() as request, exit_is_an_error(), torch_threads(int(cfg.torch_threads)):
        set_global_seed(seed)
        parts, checkpoints = build(cfg, seed, env_setting, model, mode), None
        try:
            if isinstance(parts.collector, NoCollector) and max_env_step < UNLIMITED:
                raise ConfigError(
                    f"max_env_step (--env-step) is {max_env_step}; a run that trains on a dataset takes no env step: "
                    "limit its gradient steps, max_train_iter (--train-iter)"
                )
            if load_path is not None:
                _warm_start(parts, load_path)
            checkpoints = _Checkpoints(parts)
            folder = RunFolder(cfg.exp_name, on_exists) if point is None else RunFolder.existing(point[0])
            checkpoints.folder = folder
            _run(parts, checkpoints, folder, max_train_iter, max_env_step, None if point is None else point[1], request)
        except BaseException as err:
            parts.close_after(err)
            raise
        else:
            parts.close()
        finally:
            if checkpoints is not None and checkpoints.folder is not None:
                checkpoints.folder.close()
    return parts.policy


def parallel_pipeline(input_cfg: Any, *args: Any, **options: Any) -> Policy:
    """`serial_pipeline` with `mode='parallel'`: worker processes collect, in turn with the updates made here."""
    return serial_pipeline(input_cfg, *args, **options, mode="parallel")


def async_pipeline(input_cfg: Any, *args: Any, **options: Any) -> Policy:
    """`serial_pipeline` with `mode='async'`: worker processes collect while this one learns."""
    return serial_pipeline(input_cfg, *args, **options, mode="async")


def _read_point(
    cfg: CfgDict, seed: int | None, load_path: str | None, on_exists: str, mode: str
) -> tuple[Path, dict[str, Any]]:
    """The folder and the state of the run to resume."""
    if on_exists == "error":
        raise ConfigError("on_exists='error' (--on-exists) has no meaning with resume, which wants the folder to exist")
    if load_path is not None:
        raise ConfigError("resume goes on from a run's own resume point; leave out load_path (--load-path)")
    return find_run(cfg, seed, mode)


class _Checkpoints:
    """Writes the checkpoints of a run. Makes the learner, whose hooks may be refused, before there is a folder."""

    def __init__(self, parts: Components) -> None:
        self._parts = parts
        self.folder: RunFolder | None = None
        self.learner = Learner(parts.cfg.policy.learn.learner, parts.policy.learn_mode, save=self)

    def __call__(self, name: str, moment: Moment | None = None) -> None:
        assert self.folder is not None
        train_iter, parts = self.learner.train_iter, self._parts
        path = self.folder.ckpt_best if name == "ckpt_best" else self.folder.ckpt_iteration(train_iter)
        if moment is None:
            moment = Moment(parts.collector.envstep, train_iter, parts.policy.learn_mode.state_dict())
        counters = {"train_iter": moment.train_iter, "envstep": moment.envstep}
        save_checkpoint(path, parts.cfg.policy.type, moment.state, counters, parts.policy.recipe())


def _run(
    parts: Components,
    save: _Checkpoints,
    folder: RunFolder,
    max_train_iter: int,
    max_env_step: int,
    state: dict[str, Any] | None,
    request: StopRequest,
) -> None:
    cfg, start = parts.cfg, time.perf_counter()
    cfg.exp_name = str(folder.path)
    learner = save.learner
    loop = SyncLoop(parts, learner, save, max_train_iter, max_env_step, folder.path, request=request)
    if state is None:
        folder.save_config(cfg)
    else:
        _load(state, parts, learner, loop, folder)
        start -= state["logger"]["elapsed"]
    logged, rng = (None, None) if state is None else (state["logger"], state["rng"])
    if state is not None:
        state.clear()  # a replay would be held twice
    with Logger(folder.path, resume=logged) as logger, Progress(max_env_step, max_train_iter) as progress:
        loop.logger = learner.logger = logger
        loop.progress = progress
        loop.points = ResumePoints(folder.path, cfg.resume, lambda: run_state(parts, learner, loop, logger))

        def save_result(reason: str) -> None:
            folder.save_result(
                env_step=parts.collector.envstep,
                train_iter=learner.train_iter,
                stop=loop.stopped,
                eval_value=loop.result.get("eval_value"),
                eval_value_raw=loop.result.get("eval_value_raw"),
                seed=parts.seed,
                wall_time_s=time.perf_counter() - start,
                reason=reason,
                tasks=of_tasks(loop.result),
            )

        try:
            loop.run(rng)
            save("last")
        except BaseException as err:
            name = type(err).__name__
            _try_after(err, lambda: save("last"), lambda: save_result(name))
            if isinstance(err, KeyboardInterrupt):
                _tell_how_to_go_on(loop, folder)
            raise
        save_result(loop.reason or "limit reached")
    value, what = loop.result["eval_value"], "score" if cfg.env.score else "mean return"
    get_logger().info(
        f"{loop.reason or 'limit reached'}: {what} {value:.2f} over {loop.result['n_episode']} episodes after "
        f"{parts.collector.envstep:,} env steps, {learner.train_iter:,} gradient steps, "
        f"{time.perf_counter() - start:.1f} s. Results: {folder.path}"
    )


def _tell_how_to_go_on(loop: SyncLoop, folder: RunFolder) -> None:
    points = loop.points
    how = (
        f". Go on with: ding -m {loop.parts.mode} -c {folder.path / CONFIG_FILE} --resume"
        if points and points.enabled
        else ""
    )
    envstep, train_iter = loop.collector.envstep, loop.learner.train_iter
    get_logger().info(f"stopped at env step {envstep:,}, gradient step {train_iter:,}. Results: {folder.path}{how}")


def _load(state: dict[str, Any], parts: Components, learner: Learner, loop: SyncLoop, folder: RunFolder) -> None:
    load_run_state(state, parts, learner, loop)
    envstep, reason = parts.collector.envstep, parts.collector.not_exact
    told = "" if reason is None else f"; not exact: {reason}"
    get_logger().info(f"resuming {folder.path} at env step {envstep:,}, gradient step {learner.train_iter:,}{told}")


def _try_after(err: BaseException, *saves: Callable[[], None]) -> None:
    """What is kept of a run that did not end by itself; the error in hand stays the one that is raised."""
    for save in saves:
        try:
            save()
        except (CheckpointError, RunFolderError) as reason:
            if str(reason) != str(err):
                get_logger().warning(f"after {type(err).__name__}: {reason}")


def _warm_start(parts: Components, path: str) -> None:
    state = load_checkpoint(path, parts.cfg.policy.type)["state"]
    load_model_state(parts.policy.get_model(), state["model"], path)
    mode = parts.policy.learn_mode
    try:
        state, told = _with_own_settings(state, mode.state_dict())
        mode.load_state_dict(state)
    except (ValueError, LookupError, TypeError, AttributeError, RuntimeError) as err:
        reason = str(err).splitlines()[0] if str(err) else ""
        raise CheckpointError(
            f"checkpoint {path} does not fit this config: {type(err).__name__}: {reason}. Take another file of "
            "<exp_name>/ckpt/, or the config it was trained with"
        ) from err
    get_logger().info(f"from {path}: weights restored; {'; '.join(told) or 'it holds no optimiser'}")


def _with_own_settings(state: dict[str, Any], own: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """A checkpoint's state whose optimisers have the hyper-parameters of `own`, and what is said of them.

    An optimiser of another type is left out: its moments mean something else.
    """
    kept, told = dict(state), []
    if "target_model" in own and "target_model" not in state:
        kept["target_model"] = {**own["target_model"], "model": state["model"]}
        told.append("it holds no target network, which starts as a copy of the online one")
    for name, saved in state.items():
        mine = own.get(name)
        if not (isinstance(saved, dict) and "param_groups" in saved and mine):
            continue
        if _kind(mine) != _kind(saved):
            del kept[name]
            told.append(f"{name} starts anew, as the checkpoint's is of type {saved.get('type', 'unknown')}")
        else:
            kept[name] = {**saved, "param_groups": mine["param_groups"]}
            told.append(f"{name} too, with the settings of this config")
    return kept, told


def _kind(optimizer: dict[str, Any]) -> tuple[Any, list[set[str]]]:
    return optimizer.get("type"), [set(group) for group in optimizer["param_groups"]]
