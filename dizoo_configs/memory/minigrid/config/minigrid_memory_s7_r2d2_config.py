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
        burnin_step=4,
        learn_unroll_len=25,
        model=dict(encoder_hidden_size_list=[128, 64], lstm_type="pytorch", head_hidden_size=128),
        learn=dict(
            loss="huber",
            update_per_collect=8,
            batch_size=32,
            learning_rate=5e-4,
            target_theta=0.01,
            value_rescale=False,
        ),
        collect=dict(n_sample=32),
        eval=dict(evaluator=dict(eval_freq=1000)),
        other=dict(
            eps_ladder=dict(base=0.5, alpha=5.0),  # who turns round at the start sees the object
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
