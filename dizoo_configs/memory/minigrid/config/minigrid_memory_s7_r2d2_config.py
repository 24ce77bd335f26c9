"""MiniGrid-MemoryS7-v0 with R2D2: see an object, walk to the fork, go to its like. Chance at the fork is about 0.5.

`pip install 'ding_like[minigrid]'`.
"""

main_config = dict(
    exp_name="minigrid_memory_s7_r2d2_seed0",
    env=dict(
        wrappers=["minigrid_one_hot"],
        collector_env_num=16,
        evaluator_env_num=10,
        n_evaluator_episode=50,
        stop_value=0.9,
    ),
    policy=dict(
        discount_factor=0.99,
        nstep=5,
        burnin_step=8,
        learn_unroll_len=40,
        model=dict(encoder_hidden_size_list=[128, 64], lstm_type="pytorch", head_hidden_size=128),
        learn=dict(update_per_collect=8, batch_size=32, learning_rate=5e-4, target_theta=0.01, value_rescale=False),
        collect=dict(n_sample=16),
        eval=dict(evaluator=dict(eval_freq=400)),
        other=dict(
            eps=dict(type="linear", start=1.0, end=0.05, decay=100000),
            replay_buffer=dict(replay_buffer_size=10000),
        ),
    ),
)
create_config = dict(
    env=dict(
        type="MiniGrid-MemoryS7-v0",
        import_names=["dizoo_configs.memory.minigrid.envs.minigrid_wrappers"],
    ),
    env_manager=dict(type="base"),
    policy=dict(type="r2d2"),
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
