"""MinAtar Breakout (Young and Tian 2019) with IMPALA: a mean return of 10 over 20 episodes.

Half of each batch is replayed: 160 env steps, and 160 older ones, to a gradient step.
"""

main_config = dict(
    exp_name="minatar_breakout_impala_seed0",
    env=dict(
        collector_env_num=16,
        evaluator_env_num=10,
        n_evaluator_episode=20,
        stop_value=10,
    ),
    policy=dict(
        discount_factor=0.99,
        learn_unroll_len=10,
        model=dict(encoder_hidden_size_list=[16, 128], actor_head_layer_num=0, critic_head_layer_num=0),
        learn=dict(batch_size=32, optimizer="adam", learning_rate=1e-3, entropy_weight=0.02),
        collect=dict(n_sample=16),
        eval=dict(evaluator=dict(eval_freq=1000)),
        other=dict(replay_buffer=dict(replay_share=0.5, replay_buffer_size=2000)),
    ),
)
create_config = dict(
    env=dict(type="MinAtar/Breakout-v1"),
    env_manager=dict(type="base"),
    policy=dict(type="impala"),
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
