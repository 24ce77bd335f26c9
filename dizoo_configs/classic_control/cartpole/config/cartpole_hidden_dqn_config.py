"""CartPole-v1 without its velocities, with a recurrent DQN: a mean return of 400."""

main_config = dict(
    exp_name="cartpole_hidden_dqn_seed0",
    env=dict(
        wrappers=[dict(type="select_obs", keep=[0, 2])],  # cart position and pole angle
        collector_env_num=8,
        evaluator_env_num=10,
        n_evaluator_episode=20,
        stop_value=400,
    ),
    policy=dict(
        discount_factor=0.99,
        nstep=3,
        burnin_step=10,
        learn_unroll_len=40,
        priority=True,
        norm_obs=dict(use_norm=True),
        model=dict(type="drqn", encoder_hidden_size_list=[64], lstm_type="pytorch"),
        learn=dict(
            update_per_collect=8, batch_size=64, learning_rate=1e-3, target_theta=0.01, grad_clip_norm=10.0, loss="mse"
        ),
        collect=dict(n_sample=4),
        eval=dict(evaluator=dict(eval_freq=100)),
        other=dict(
            eps=dict(type="exp", start=1.0, end=0.05, decay=4000),
            replay_buffer=dict(replay_buffer_size=4000),
        ),
    ),
)
create_config = dict(
    env=dict(type="CartPole-v1"),
    env_manager=dict(type="base"),
    policy=dict(type="dqn"),
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
