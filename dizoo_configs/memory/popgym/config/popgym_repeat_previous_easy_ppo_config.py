"""POPGym RepeatPreviousEasy with PPO over an LSTM: name the suit of the fourth last card; a mean return of 0.9 (of 1).

`pip install 'ding_like[popgym]'`.
"""

main_config = dict(
    exp_name="popgym_repeat_previous_easy_ppo_seed0",
    env=dict(
        wrappers=[dict(type="reward_scale", scale=48, train_only=True)],  # 1 for a right answer, -1 for a wrong one
        collector_env_num=16,
        evaluator_env_num=10,
        n_evaluator_episode=20,
        stop_value=0.9,
    ),
    policy=dict(
        discount_factor=0.1,  # answers change nothing but their own reward
        learn_unroll_len=51,  # an episode: all columns begin and end theirs together
        model=dict(encoder_hidden_size_list=[64], lstm_type="pytorch", share_encoder=False, activation="tanh"),
        learn=dict(epoch_per_collect=4, batch_size=4, learning_rate=2e-3, entropy_weight=0.01),
        collect=dict(n_sample=16, gae_lambda=0.0),  # segments: one episode of each column
        eval=dict(evaluator=dict(eval_freq=160)),
    ),
)
create_config = dict(
    env=dict(type="popgym-RepeatPreviousEasy-v0"),
    env_manager=dict(type="base"),
    policy=dict(type="ppo"),
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline_onpolicy

    serial_pipeline_onpolicy((main_config, create_config), seed=0)
