"""Three MiniGrid levels in one network with IMPALA: an empty room, a gap in the lava, a key for a door.

Each env column plays one level, and the policy is never told which. `benchmarks/multitask.py` compares with a network
for each level.

`pip install 'ding_like[minigrid]'`.
"""

main_config = dict(
    exp_name="minigrid3_impala_seed0",
    env=dict(
        tasks=[
            dict(type="MiniGrid-Empty-Random-5x5-v0", name="empty"),
            dict(type="MiniGrid-LavaGapS5-v0", name="lava"),
            dict(type="MiniGrid-DoorKey-5x5-v0", name="door"),
        ],
        wrappers=["minigrid_one_hot"],
        collector_env_num=24,
        evaluator_env_num=12,
        n_evaluator_episode=20,
        stop_value=0.93,
    ),
    policy=dict(
        discount_factor=0.99,
        learn_unroll_len=20,
        model=dict(encoder_hidden_size_list=[128, 64], share_encoder=True),
        learn=dict(batch_size=12, optimizer="adam", learning_rate=1e-3, entropy_weight=0.002),
        collect=dict(n_sample=24),  # a trajectory of every column
        eval=dict(evaluator=dict(eval_freq=100)),
    ),
)
create_config = dict(
    env=dict(import_names=["dizoo_configs.memory.minigrid.envs.minigrid_wrappers"]),
    env_manager=dict(type="base"),
    policy=dict(type="impala"),
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
