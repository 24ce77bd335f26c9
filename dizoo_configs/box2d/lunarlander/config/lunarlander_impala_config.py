"""LunarLander-v3 with IMPALA: a mean return of 200 (Gymnasium's threshold) over 20 episodes."""

main_config = dict(
    exp_name="lunarlander_impala_seed0",
    env=dict(
        collector_env_num=8,
        evaluator_env_num=10,
        n_evaluator_episode=20,
        stop_value=200,
        wrappers=[dict(type="reward_scale", scale=0.05, train_only=True)],  # so that values are of the size of 1
    ),
    policy=dict(
        discount_factor=0.995,
        learn_unroll_len=5,
        norm_obs=dict(use_norm=True),
        model=dict(
            encoder_hidden_size_list=[64, 64],
            share_encoder=False,
            actor_head_layer_num=0,
            critic_head_layer_num=0,
            activation="tanh",
        ),
        learn=dict(batch_size=8, optimizer="adam", learning_rate=7e-4, entropy_weight=1e-4),
        collect=dict(n_sample=8),
        eval=dict(evaluator=dict(eval_freq=1000)),
    ),
)
create_config = dict(
    env=dict(type="LunarLander-v3"),
    env_manager=dict(type="base"),
    policy=dict(type="impala"),
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
