"""HalfCheetah-v5 with SAC: the settings of Haarnoja 2018, an update every env step."""

main_config = dict(
    exp_name="halfcheetah_sac_seed0",
    env=dict(
        collector_env_num=1,
        evaluator_env_num=10,
        n_evaluator_episode=20,
        stop_value=10000,
    ),
    policy=dict(
        discount_factor=0.99,
        random_collect_size=5000,
        learn=dict(update_per_collect=1, batch_size=256, learning_rate=3e-4),
        collect=dict(n_sample=1),
        eval=dict(evaluator=dict(eval_freq=5000)),
        other=dict(replay_buffer=dict(replay_buffer_size=1000000)),
    ),
)
create_config = dict(
    env=dict(type="HalfCheetah-v5"),
    env_manager=dict(type="base"),
    policy=dict(type="sac"),
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
