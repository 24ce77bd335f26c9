"""The recall corridor with IMPALA over an LSTM: 95 of 100 cues named right.

A trajectory has `learn_unroll_len` = 16 steps, the lead-in alone is up to twice as long: most begin amid an episode,
where only the stored state knows what was seen.
"""

main_config = dict(
    exp_name="corridor_impala_seed0",
    env=dict(
        env_kwargs=dict(cues=2, min_lead_in=0, max_lead_in=32, delay=8),
        collector_env_num=16,
        evaluator_env_num=20,
        n_evaluator_episode=100,
        stop_value=0.95,
    ),
    policy=dict(
        discount_factor=0.99,
        learn_unroll_len=16,
        model=dict(encoder_hidden_size_list=[64], lstm_type="pytorch", share_encoder=False, activation="tanh"),
        learn=dict(batch_size=32, optimizer="adam", learning_rate=2e-3, entropy_weight=0.01, lambda_=0.0),
        collect=dict(n_sample=32),
        eval=dict(evaluator=dict(eval_freq=50)),
    ),
)
create_config = dict(
    env=dict(type="corridor", import_names=["dizoo_configs.memory.corridor.envs.corridor_env"]),
    env_manager=dict(type="base"),
    policy=dict(type="impala"),
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
