"""CartPole-v1 without its velocities by behavioural cloning: an LSTM learns to remember them from the episodes of a
trained policy that does. A mean return of 400:

ding -m serial -c cartpole_hidden_ppo_config.py -s 0
ding -m collect --load-path cartpole_hidden_ppo_seed0 --episodes 50 --out cartpole_hidden_dataset.npz
ding -m serial -c cartpole_hidden_bc_config.py -s 0 --train-iter 20000
"""

main_config = dict(
    exp_name="cartpole_hidden_bc_seed0",
    env=dict(
        collector_env_num=1,
        evaluator_env_num=10,
        n_evaluator_episode=20,
        stop_value=400,
        wrappers=[dict(type="select_obs", keep=[0, 2])],  # position and angle, no velocities
    ),
    policy=dict(
        burnin_step=8,
        learn_unroll_len=32,
        norm_obs=dict(use_norm=True),
        model=dict(encoder_hidden_size_list=[64], lstm_type="pytorch"),
        learn=dict(batch_size=16, learning_rate=1e-3),  # windows
        eval=dict(evaluator=dict(eval_freq=500)),
        other=dict(replay_buffer=dict(path="cartpole_hidden_dataset.npz")),
    ),
)
create_config = dict(
    env=dict(type="CartPole-v1"),
    env_manager=dict(type="base"),
    policy=dict(type="bc"),
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0, max_train_iter=20_000)
