"""MinAtar Breakout with Rainbow (Young and Tian 2019): a mean return of 10 over 20 episodes."""

main_config = dict(
    exp_name="minatar_breakout_rainbow_seed0",
    env=dict(
        collector_env_num=8,
        evaluator_env_num=10,
        n_evaluator_episode=20,
        stop_value=10,
    ),
    policy=dict(
        discount_factor=0.99,
        random_collect_size=5000,
        model=dict(encoder_hidden_size_list=[16, 128], head_layer_num=0, v_min=0.0, v_max=10.0),
        learn=dict(update_per_collect=8, batch_size=64, learning_rate=2.5e-4, target_update_freq=1000),
        collect=dict(n_sample=32),
        eval=dict(evaluator=dict(eval_freq=5000)),
        other=dict(
            replay_buffer=dict(replay_buffer_size=100000),
        ),
    ),
)
create_config = dict(
    env=dict(type="MinAtar/Breakout-v1"),
    env_manager=dict(type="base"),
    policy=dict(type="rainbow"),
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
