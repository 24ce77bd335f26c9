"""MountainCar-v0 with DQN: a mean return of -110 (Gymnasium's threshold) over 20 episodes."""

main_config = dict(
    exp_name="mountain_car_dqn_seed0",
    env=dict(
        collector_env_num=8,
        evaluator_env_num=10,
        n_evaluator_episode=20,
        stop_value=-110,
    ),
    policy=dict(
        nstep=3,
        discount_factor=0.99,
        random_collect_size=1000,
        norm_obs=dict(use_norm=True),  # velocities are below 0.07
        model=dict(encoder_hidden_size_list=[128, 128], dueling=False, head_layer_num=0, norm_type="LN"),
        learn=dict(update_per_collect=8, batch_size=128, learning_rate=1e-3, target_theta=0.01, grad_clip_norm=10.0),
        collect=dict(n_sample=16),
        eval=dict(evaluator=dict(eval_freq=1000)),
        other=dict(
            eps=dict(type="linear", start=1.0, end=0.02, decay=20000),
            replay_buffer=dict(replay_buffer_size=50000),
        ),
    ),
)
create_config = dict(
    env=dict(type="MountainCar-v0"),
    env_manager=dict(type="base"),
    policy=dict(type="dqn"),
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
