"""Pendulum-v1 with PPO: a mean return of -200 over 20 episodes."""

main_config = dict(
    exp_name="pendulum_ppo_seed0",
    env=dict(
        collector_env_num=8,
        evaluator_env_num=10,
        n_evaluator_episode=20,
        stop_value=-200,
    ),
    policy=dict(
        discount_factor=0.9,
        norm_obs=dict(use_norm=True),
        model=dict(
            encoder_hidden_size_list=[64, 64],
            share_encoder=False,
            actor_head_layer_num=0,
            critic_head_layer_num=0,
            activation="tanh",
            init_sigma=0.6,
        ),
        learn=dict(epoch_per_collect=10, batch_size=64, learning_rate=1e-3, entropy_weight=0.0, value_norm=True),
        collect=dict(n_sample=2048, gae_lambda=0.95),
        eval=dict(evaluator=dict(eval_freq=320)),
    ),
)
create_config = dict(
    env=dict(type="Pendulum-v1"),
    env_manager=dict(type="base"),
    policy=dict(type="ppo"),
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline_onpolicy

    serial_pipeline_onpolicy((main_config, create_config), seed=0)
