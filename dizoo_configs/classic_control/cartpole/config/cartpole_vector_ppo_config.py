"""CartPole-v1 with PPO on 256 natively batched env columns: 475 over 20 episodes."""

main_config = dict(
    exp_name="cartpole_vector_ppo_seed0",
    env=dict(
        collector_env_num=256,
        evaluator_env_num=10,
        n_evaluator_episode=20,
        stop_value=475,
    ),
    policy=dict(
        discount_factor=0.98,
        model=dict(
            encoder_hidden_size_list=[64, 64],
            share_encoder=False,
            actor_head_layer_num=0,
            critic_head_layer_num=0,
            activation="tanh",
        ),
        learn=dict(epoch_per_collect=10, batch_size=512, learning_rate=2e-3, entropy_weight=0.0),
        collect=dict(n_sample=8192, gae_lambda=0.9),
        eval=dict(evaluator=dict(eval_freq=160)),
    ),
)
create_config = dict(
    env=dict(type="CartPole-v1"),
    env_manager=dict(type="vector"),
    policy=dict(type="ppo"),
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline_onpolicy

    serial_pipeline_onpolicy((main_config, create_config), seed=0)
