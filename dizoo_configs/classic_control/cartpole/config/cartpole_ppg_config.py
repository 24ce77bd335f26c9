"""CartPole-v1 with phasic policy gradient: a mean return of 475 (Gymnasium's threshold) over 20 episodes."""

main_config = dict(
    exp_name="cartpole_ppg_seed0",
    env=dict(
        collector_env_num=8,
        evaluator_env_num=10,
        n_evaluator_episode=20,
        stop_value=475,
    ),
    policy=dict(
        discount_factor=0.98,
        model=dict(
            encoder_hidden_size_list=[64, 64],
            actor_head_layer_num=0,
            critic_head_layer_num=0,
            activation="tanh",
        ),
        learn=dict(epoch_per_collect=4, batch_size=64, learning_rate=1e-3, entropy_weight=0.0),
        collect=dict(n_sample=256, gae_lambda=0.9),
        eval=dict(evaluator=dict(eval_freq=80)),
        other=dict(replay_buffer=dict(policy_phases=8, aux_epochs=3)),
    ),
)
create_config = dict(
    env=dict(type="CartPole-v1"),
    env_manager=dict(type="base"),
    policy=dict(type="ppg"),
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline_onpolicy

    serial_pipeline_onpolicy((main_config, create_config), seed=0)
