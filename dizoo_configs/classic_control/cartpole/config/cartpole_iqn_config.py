"""CartPole-v1 with IQN: a mean return of 475 over 20 episodes."""

main_config = dict(
    exp_name="cartpole_iqn_seed0",
    env=dict(collector_env_num=8, evaluator_env_num=10, n_evaluator_episode=20, stop_value=475),
    policy=dict(
        nstep=5,
        discount_factor=0.99,
        norm_obs=dict(use_norm=True),  # with LayerNorm what makes it quick
        model=dict(
            encoder_hidden_size_list=[128, 128],
            head_layer_num=0,
            norm_type="LN",
            dueling=False,
            num_quantiles=8,
        ),
        learn=dict(
            update_per_collect=8,
            batch_size=64,
            learning_rate=1e-3,
            target_theta=0.01,
            grad_clip_norm=10.0,
            lr_schedule=dict(type="linear", end=1e-4, decay=10000),  # calms what it has learned
        ),
        collect=dict(n_sample=16),
        eval=dict(evaluator=dict(eval_freq=128)),  # every 256 env steps
        other=dict(
            eps=dict(type="linear", start=1.0, end=0.04, decay=2000),
            replay_buffer=dict(replay_buffer_size=10000),
        ),
    ),
)
create_config = dict(
    env=dict(type="CartPole-v1"),
    env_manager=dict(type="base"),
    policy=dict(type="iqn"),
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
