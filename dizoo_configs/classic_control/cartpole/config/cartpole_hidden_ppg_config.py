"""CartPole-v1 without its velocities: phasic policy gradient over LSTMs has to remember them. A mean return of 400."""

main_config = dict(
    exp_name="cartpole_hidden_ppg_seed0",
    env=dict(
        collector_env_num=8,
        evaluator_env_num=10,
        n_evaluator_episode=20,
        stop_value=400,
        wrappers=[dict(type="select_obs", keep=[0, 2])],  # position and angle, no velocities
    ),
    policy=dict(
        discount_factor=0.98,
        learn_unroll_len=32,
        norm_obs=dict(use_norm=True),
        model=dict(encoder_hidden_size_list=[64], lstm_type="pytorch", activation="tanh"),
        learn=dict(epoch_per_collect=4, batch_size=8, learning_rate=1e-3, entropy_weight=0.0),
        collect=dict(n_sample=32, gae_lambda=0.9),  # segments: 128 steps of 8 columns
        eval=dict(evaluator=dict(eval_freq=120)),
        other=dict(replay_buffer=dict(policy_phases=8, aux_epochs=3, aux_batch_size=32)),
    ),
)
create_config = dict(
    env=dict(type="CartPole-v1"),
    env_manager=dict(type="base"),
    policy=dict(type="ppg"),
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline_onpolicy

    serial_pipeline_onpolicy((main_config, create_config), seed=0)
