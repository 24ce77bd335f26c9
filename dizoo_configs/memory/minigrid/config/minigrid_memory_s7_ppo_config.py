"""MiniGrid-MemoryS7-v0 with PPO over an LSTM: see an object, walk to the fork, go to its like. Chance there is 0.5.

It stays at 0.55: it remembers what it happens to see, and does not learn to turn round first. R2D2 does.

`pip install 'ding_like[minigrid]'`.
"""

main_config = dict(
    exp_name="minigrid_memory_s7_ppo_seed0",
    env=dict(
        wrappers=["minigrid_one_hot"],
        collector_env_num=16,
        evaluator_env_num=10,
        n_evaluator_episode=100,
        stop_value=0.95,
    ),
    policy=dict(
        discount_factor=0.99,
        learn_unroll_len=64,
        model=dict(encoder_hidden_size_list=[128, 64], lstm_type="pytorch", share_encoder=True),
        learn=dict(epoch_per_collect=4, batch_size=8, learning_rate=5e-4, entropy_weight=0.04),
        collect=dict(n_sample=32, gae_lambda=0.95),  # segments: 128 steps of 16 columns
        eval=dict(evaluator=dict(eval_freq=800)),
    ),
)
create_config = dict(
    env=dict(
        type="MiniGrid-MemoryS7-v0",
        import_names=["dizoo_configs.memory.minigrid.envs.minigrid_wrappers"],
    ),
    env_manager=dict(type="base"),
    policy=dict(type="ppo"),
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline_onpolicy

    serial_pipeline_onpolicy((main_config, create_config), seed=0)
