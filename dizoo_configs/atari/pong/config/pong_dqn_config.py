"""Atari Pong with DQN (Mnih et al. 2015) on a frame ring: as far as an hour on one core goes.

The network is the bottleneck there, so it has half the paper's widths and takes one step of 32 samples every six env
steps; 3-step returns, double and dueling Q-learning and prioritised replay make more of each. Actions are not sticky
(`repeat_action_probability=0`, as in the paper; the id's own default is 0.25): up to 30 no-ops vary the starts.
"""

main_config = dict(
    exp_name="pong_dqn_seed0",
    env=dict(
        collector_env_num=8,
        evaluator_env_num=4,
        n_evaluator_episode=4,
        stop_value=19,
        env_kwargs=dict(repeat_action_probability=0.0),
        wrappers=[
            dict(type="atari", noop_max=30, frame_skip=4, screen_size=84, grayscale=True),
            dict(type="frame_stack", n=4),
        ],
    ),
    policy=dict(
        priority=True,
        nstep=3,
        discount_factor=0.99,
        random_collect_size=5000,
        model=dict(encoder_hidden_size_list=[16, 32, 32, 256], dueling=True, head_layer_num=0),
        learn=dict(
            update_per_collect=8,
            batch_size=32,
            learning_rate=3e-4,
            grad_clip_norm=10.0,
            target_update_freq=300,
        ),
        collect=dict(n_sample=48),
        eval=dict(evaluator=dict(eval_freq=10000)),
        other=dict(
            eps=dict(type="linear", start=1.0, end=0.02, decay=60000),
            replay_buffer=dict(replay_buffer_size=100000, frame_stack=4),
        ),
    ),
)
create_config = dict(
    env=dict(type="ALE/Pong-v5"),
    env_manager=dict(type="base"),
    policy=dict(type="dqn"),
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
