"""CartPole-v1 with discrete SAC: a mean return of 475 over 20 episodes."""

main_config = dict(
    exp_name="cartpole_sac_seed0",
    env=dict(
        collector_env_num=4,
        evaluator_env_num=10,
        n_evaluator_episode=20,
        stop_value=475,
    ),
    policy=dict(
        discount_factor=0.99,
        random_collect_size=1000,
        norm_obs=dict(use_norm=True),
        model=dict(actor_head_hidden_size=64, critic_head_hidden_size=64),
        learn=dict(update_per_collect=4, batch_size=128, learning_rate=1e-3, target_theta=0.02, target_entropy=0.1),
        collect=dict(n_sample=4),
        eval=dict(evaluator=dict(eval_freq=500)),
        other=dict(replay_buffer=dict(replay_buffer_size=50000)),
    ),
)
create_config = dict(
    env=dict(type="CartPole-v1"),
    env_manager=dict(type="base"),
    policy=dict(type="sac"),
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
