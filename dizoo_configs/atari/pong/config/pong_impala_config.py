"""Atari Pong with IMPALA (Espeholt et al. 2018), its shallow network without the LSTM; for `ding -m async`.

Sizes are for two cores: two actors of 8 envs each share them with the learner. An env step costs about 0.7 ms of an
actor and 0.4 ms of the learner, so an hour has room for 6 million at most.
Actions are not sticky (`repeat_action_probability=0`; the id's own default is 0.25): up to 30 no-ops vary the starts.
"""

main_config = dict(
    exp_name="pong_impala_seed0",
    env=dict(
        collector_env_num=16,
        evaluator_env_num=4,
        n_evaluator_episode=4,
        stop_value=18,
        env_kwargs=dict(repeat_action_probability=0.0),
        wrappers=[
            dict(type="atari", noop_max=30, frame_skip=4, screen_size=84, grayscale=True),
            dict(type="frame_stack", n=4),
        ],
    ),
    policy=dict(
        discount_factor=0.99,
        learn_unroll_len=20,
        model=dict(encoder_hidden_size_list=[16, 32, 256], actor_head_layer_num=0, critic_head_layer_num=0),
        learn=dict(
            batch_size=8,
            optimizer="adam",
            learning_rate=3e-4,
            reward_clip="abs_one",
            entropy_weight=0.01,
        ),
        collect=dict(n_sample=16, collector=dict(num_workers=2)),
        eval=dict(evaluator=dict(eval_freq=3000)),
    ),
)
create_config = dict(
    env=dict(type="ALE/Pong-v5"),
    env_manager=dict(type="base"),
    policy=dict(type="impala"),
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
