"""CartPole-v1 with IMPALA: a mean return of 475 over 20 episodes."""

main_config = dict(
    exp_name="cartpole_impala_seed0",
    env=dict(
        collector_env_num=8,
        evaluator_env_num=10,
        n_evaluator_episode=20,
        stop_value=475,
    ),
    policy=dict(
        discount_factor=0.99,
        learn_unroll_len=10,
        model=dict(
            encoder_hidden_size_list=[64, 64],
            share_encoder=False,
            actor_head_layer_num=0,
            critic_head_layer_num=0,
            activation="tanh",
        ),
        learn=dict(batch_size=8, optimizer="adam", learning_rate=1e-3, entropy_weight=0.01),
        collect=dict(n_sample=8),
        eval=dict(evaluator=dict(eval_freq=50)),
    ),
)
create_config = dict(
    env=dict(type="CartPole-v1"),
    env_manager=dict(type="base"),
    policy=dict(type="impala"),
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
