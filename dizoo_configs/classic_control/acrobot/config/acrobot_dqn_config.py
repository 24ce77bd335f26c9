"""Acrobot-v1 with DQN: a mean return of -100 (Gymnasium's threshold) over 20 episodes."""

main_config = dict(
    exp_name="acrobot_dqn_seed0",
    env=dict(
        collector_env_num=8,
        evaluator_env_num=10,
        n_evaluator_episode=20,
        stop_value=-100,
    ),
    policy=dict(
        nstep=3,
        discount_factor=0.99,
        model=dict(encoder_hidden_size_list=[128, 128], dueling=False, head_layer_num=0),
        learn=dict(update_per_collect=8, batch_size=128, learning_rate=1e-3, target_update_freq=200),
        collect=dict(n_sample=64),
        eval=dict(evaluator=dict(eval_freq=500)),
        other=dict(
            eps=dict(type="linear", start=1.0, end=0.05, decay=10000),
            replay_buffer=dict(replay_buffer_size=50000),
        ),
    ),
)
create_config = dict(
    env=dict(type="Acrobot-v1"),
    env_manager=dict(type="base"),
    policy=dict(type="dqn"),
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
