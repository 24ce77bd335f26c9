"""CartPole-v1 without its velocities: IMPALA over an LSTM has to remember them. A mean return of 400."""

main_config = dict(
    exp_name="cartpole_hidden_impala_seed0",
    env=dict(
        collector_env_num=8,
        evaluator_env_num=10,
        n_evaluator_episode=20,
        stop_value=400,
        wrappers=[dict(type="select_obs", keep=[0, 2])],  # position and angle, no velocities
    ),
    policy=dict(
        discount_factor=0.98,
        learn_unroll_len=20,
        norm_obs=dict(use_norm=True),
        model=dict(encoder_hidden_size_list=[64], lstm_type="pytorch", share_encoder=False, activation="tanh"),
        learn=dict(batch_size=8, optimizer="adam", learning_rate=1e-3, entropy_weight=0.01),
        collect=dict(n_sample=8),
        eval=dict(evaluator=dict(eval_freq=100)),
    ),
)
create_config = dict(
    env=dict(type="CartPole-v1"),
    env_manager=dict(type="base"),
    policy=dict(type="impala"),
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
