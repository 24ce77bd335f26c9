"""Dials (MultiDiscrete actions) with PPO: 19 of 20 dials right on average."""

main_config = dict(
    exp_name="dials_ppo_seed0",
    env=dict(
        collector_env_num=8,
        evaluator_env_num=4,
        n_evaluator_episode=20,
        stop_value=19,
    ),
    policy=dict(
        discount_factor=0.5,  # a step's reward depends on nothing before it
        model=dict(
            encoder_hidden_size_list=[64, 64],
            share_encoder=False,
            actor_head_layer_num=0,
            critic_head_layer_num=0,
            activation="tanh",
        ),
        learn=dict(epoch_per_collect=8, batch_size=128, learning_rate=3e-3, entropy_weight=0.0),
        collect=dict(n_sample=1024, gae_lambda=0.9),
        eval=dict(evaluator=dict(eval_freq=64)),
    ),
)
create_config = dict(
    env=dict(type="dials", import_names=["dizoo_configs.toy.dials.envs.dials_env"]),
    env_manager=dict(type="base"),
    policy=dict(type="ppo"),
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline_onpolicy

    serial_pipeline_onpolicy((main_config, create_config), seed=0)
