"""CartPole-v1 by behavioural cloning: a mean return of 475, learned from the episodes of a trained policy:

ding -m serial -c cartpole_ppo_config.py -s 0
ding -m collect --load-path cartpole_ppo_seed0 --episodes 20 --out cartpole_dataset.npz
ding -m serial -c cartpole_bc_config.py -s 0 --train-iter 20000
"""

main_config = dict(
    exp_name="cartpole_bc_seed0",
    env=dict(collector_env_num=1, evaluator_env_num=10, n_evaluator_episode=20, stop_value=475),
    policy=dict(
        model=dict(encoder_hidden_size_list=[64, 64]),
        learn=dict(batch_size=128, learning_rate=1e-3),
        eval=dict(evaluator=dict(eval_freq=500)),
        other=dict(replay_buffer=dict(path="cartpole_dataset.npz")),
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
