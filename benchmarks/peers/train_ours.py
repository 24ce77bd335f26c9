"""Our side of train.py: the shared work as a config, or our recipe of the env, run by `serial_pipeline` itself."""

import importlib
import os
import tempfile
from copy import deepcopy

import ding_like
from ding_like.config import deep_merge_defaults
from ding_like.entry.serial_entry import serial_pipeline
from ding_like.utils import HOOK_REGISTRY
from ding_like.worker import Evaluator, LearnerHook

FIXED = dict(  # train.py evaluates everybody by itself; ours only at start and end, and that is not timed
    env=dict(n_evaluator_episode=1, evaluator_env_num=1, stop_value=None),
    policy=dict(
        learn=dict(learner=dict(hooks=[dict(type="bench_start"), dict(type="bench_iter")])),
        eval=dict(evaluator=dict(eval_freq=10**9)),
    ),
)


def same_work(algo, n, steps):
    """The work that train.py states, with `n` env columns."""
    if algo == "ppo":
        n = n or 8
        net = dict(encoder_hidden_size_list=[64, 64], share_encoder=False, actor_head_layer_num=0)
        learn = dict(epoch_per_collect=4, batch_size=256, learning_rate=2.5e-4, clip_ratio=0.2, grad_clip_norm=0.5)
        policy = dict(
            type="ppo",
            discount_factor=0.99,
            model=dict(net, critic_head_layer_num=0, activation="tanh"),
            learn=dict(learn, entropy_weight=0.01, value_weight=0.5),
            collect=dict(n_sample=128 * n, gae_lambda=0.95),
        )
    elif algo == "rppo":  # train_others.py --what sb3_rppo: one LSTM for both, velocities hidden
        n = n or 8
        net = dict(encoder_hidden_size_list=[64], lstm_type="pytorch", lstm_hidden_size=128)
        net |= dict(actor_head_hidden_size=64, critic_head_hidden_size=64, activation="tanh")
        learn = dict(epoch_per_collect=4, batch_size=8, learning_rate=2.5e-4, clip_ratio=0.2, grad_clip_norm=0.5)
        policy = dict(
            type="ppo",
            discount_factor=0.99,
            learn_unroll_len=32,
            model=net,
            learn=dict(learn, entropy_weight=0.01, value_weight=0.5),
            collect=dict(n_sample=4 * n, gae_lambda=0.95),  # segments of 32 steps: 128 a column
        )
    elif algo in ("sac", "td3"):
        n = n or 1
        policy = dict(
            type=algo,
            discount_factor=0.99,
            random_collect_size=1000,
            learn=dict(batch_size=256, update_per_collect=n, learning_rate=1e-3),
            collect=dict(n_sample=n),
            other=dict(replay_buffer=dict(replay_buffer_size=100_000)),
        )
    else:
        n = n or 1
        learn = dict(batch_size=128, update_per_collect=max(1, n // 4), learning_rate=2.5e-4, target_update_freq=125)
        policy = dict(
            type=algo,
            double=False,
            discount_factor=0.99,
            random_collect_size=1000,
            model=dict(
                encoder_hidden_size_list=[120, 84],
                dueling=False,
                head_layer_num=0,
                **(dict(num_quantiles=32) if algo == "qrdqn" else {}),
            ),
            learn=learn,
            collect=dict(n_sample=max(4, n)),
            other=dict(
                eps=dict(type="linear", start=1.0, end=0.05, decay=steps // 2),
                replay_buffer=dict(replay_buffer_size=10_000),
            ),
        )
    env = dict(type="Pendulum-v1" if algo in ("sac", "td3") else "CartPole-v1", collector_env_num=n)
    if algo == "rppo":
        env["wrappers"] = [dict(type="select_obs", keep=[0, 2])]
    return dict(env=env, policy=policy)


def recipe(algo):
    """The project's own config of the env."""
    env = "pendulum" if algo in ("sac", "td3") else "cartpole"
    module = importlib.import_module(f"dizoo_configs.classic_control.{env}.config.{env}_{algo}_config")
    return deep_merge_defaults(deepcopy(module.main_config), deepcopy(module.create_config))


def run(args, steps, clk, maybe_eval, stop):
    """Train; `stop` is the exception by which `maybe_eval(envstep, act)` ends a run.

    Returns env steps, seconds of wall and CPU (evaluations left out) and gradient steps, and the version.
    """
    last = {}

    @HOOK_REGISTRY.register("bench_start")
    class Start(LearnerHook):
        position = "before_run"

        def __call__(self, learner):
            clk.start()

    @HOOK_REGISTRY.register("bench_iter")
    class Iter(LearnerHook):
        position = "after_iter"

        def __call__(self, learner):
            last.update(envstep=learner.envstep, it=learner.train_iter, t=clk.now())
            maybe_eval(learner.envstep, lambda o: last["eval"].forward(o[None])["action"][0])

    evaluate = Evaluator.evaluate

    def timed(self):
        last["eval"] = self._policy
        with clk.paused():
            return evaluate(self)

    Evaluator.evaluate = timed
    cfg = recipe(args.algo) if args.set == "own" else same_work(args.algo, args.envs, steps)
    with tempfile.TemporaryDirectory(prefix="ours_") as folder:
        try:
            name = os.path.join(folder, "run")
            serial_pipeline(deep_merge_defaults(cfg, FIXED), seed=args.seed, max_env_step=steps, exp_name=name)
        except stop:
            pass
    return last["envstep"], last["t"], last["it"], ding_like.__version__
