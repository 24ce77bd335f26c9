"""Pendulum-v1 without its angular velocity, with DDPG over RNNs that make up for it: a mean return of -300."""

main_config = dict(
    exp_name="pendulum_hidden_ddpg_seed0",
    env=dict(
        collector_env_num=4,
        evaluator_env_num=10,
        n_evaluator_episode=20,
        stop_value=-300,
        wrappers=[dict(type="select_obs", keep=[0, 1])],  # where the pole points, not how fast it turns
    ),
    policy=dict(
        discount_factor=0.98,
        learn_unroll_len=11,  # 10 steps train, the last is only bootstrapped from
        random_collect_size=1000,
        model=dict(lstm_type="gru", lstm_hidden_size=64, actor_head_hidden_size=64, critic_head_hidden_size=64),
        learn=dict(update_per_collect=8, batch_size=32, learning_rate=1e-3),
        collect=dict(n_step=8, noise_sigma=0.2),
        eval=dict(evaluator=dict(eval_freq=500)),
        other=dict(replay_buffer=dict(replay_buffer_size=10000)),
    ),
)
create_config = dict(
    env=dict(type="Pendulum-v1"),
    env_manager=dict(type="base"),
    policy=dict(type="ddpg"),
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
