"""CartPole-v1 with R2D2: a mean return of 475. An LSTM learns from prioritised windows: stored states, burn-in."""

main_config = dict(
    exp_name="cartpole_r2d2_seed0",
    env=dict(collector_env_num=8, evaluator_env_num=10, n_evaluator_episode=20, stop_value=475),
    policy=dict(
        discount_factor=0.99,
        nstep=3,
        burnin_step=4,
        learn_unroll_len=20,
        norm_obs=dict(use_norm=True),
        model=dict(encoder_hidden_size_list=[64], lstm_type="pytorch"),
        learn=dict(
            update_per_collect=16,
            batch_size=32,
            learning_rate=1e-3,
            target_theta=0.01,
            loss="mse",  # huber would hardly feel the ends: few steps, wrong by much, while values still grow
            grad_clip_norm=10.0,
            lr_schedule=dict(type="linear", end=2e-4, decay=8000),  # calms what it has learned
        ),
        collect=dict(n_sample=4),
        eval=dict(evaluator=dict(eval_freq=200)),
        other=dict(
            eps=dict(type="exp", start=1.0, end=0.05, decay=4000),
            replay_buffer=dict(replay_buffer_size=4000),
        ),
    ),
)
create_config = dict(
    env=dict(type="CartPole-v1"),
    env_manager=dict(type="base"),
    policy=dict(type="r2d2"),
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
