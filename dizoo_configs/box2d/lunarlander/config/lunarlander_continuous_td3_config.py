"""LunarLander-v3 with continuous actions and TD3: a mean return of 200 over 20 episodes."""

main_config = dict(
    exp_name="lunarlander_continuous_td3_seed0",
    env=dict(
        collector_env_num=8,
        evaluator_env_num=10,
        n_evaluator_episode=20,
        stop_value=200,
    ),
    policy=dict(
        discount_factor=0.99,
        random_collect_size=5000,
        norm_obs=dict(use_norm=True),
        model=dict(actor_head_hidden_size=128, critic_head_hidden_size=128),
        learn=dict(update_per_collect=4, batch_size=256, learning_rate=1e-3, target_theta=0.01),
        collect=dict(n_sample=8),
        eval=dict(evaluator=dict(eval_freq=2000)),
        other=dict(replay_buffer=dict(replay_buffer_size=200000)),
    ),
)
create_config = dict(
    env=dict(type="LunarLander-v3", env_kwargs=dict(continuous=True)),
    env_manager=dict(type="base"),
    policy=dict(type="td3"),
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
