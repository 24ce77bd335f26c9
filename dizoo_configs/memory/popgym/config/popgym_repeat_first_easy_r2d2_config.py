"""POPGym RepeatFirstEasy with R2D2: name the suit of the first card at every step; a mean return of 0.9 (of 1).

`pip install 'ding_like[popgym]'`.
"""

main_config = dict(
    exp_name="popgym_repeat_first_easy_r2d2_seed0",
    env=dict(
        wrappers=[dict(type="reward_scale", scale=51, train_only=True)],  # 1 for a right answer, -1 for a wrong one
        collector_env_num=8,
        evaluator_env_num=10,
        n_evaluator_episode=20,
        stop_value=0.9,
    ),
    policy=dict(
        discount_factor=0.1,  # answers change nothing but their own reward
        nstep=1,
        burnin_step=0,
        learn_unroll_len=52,  # an episode of 51 steps and the observation after it: each window is one episode
        model=dict(encoder_hidden_size_list=[64], lstm_type="pytorch"),
        learn=dict(
            loss="huber",
            update_per_collect=8,
            batch_size=32,
            learning_rate=2e-3,
            target_theta=0.01,
            value_rescale=False,
        ),
        collect=dict(n_sample=8),
        eval=dict(evaluator=dict(eval_freq=200)),
        other=dict(
            eps=dict(type="linear", start=1.0, end=0.05, decay=20000),
            replay_buffer=dict(replay_buffer_size=2000),
        ),
    ),
)
create_config = dict(
    env=dict(type="popgym-RepeatFirstEasy-v0"),
    env_manager=dict(type="base"),
    policy=dict(type="r2d2"),
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
