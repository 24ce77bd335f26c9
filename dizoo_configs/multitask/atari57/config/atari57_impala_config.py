"""The 57 Atari games in one deep network with IMPALA, an env column a game; the score of Espeholt et al. 2018, 5.3.

`full_action_space=True` and `full_actions` give every game the same 18 actions. Tests make and step the list; a run of
it wants a large machine (the paper: 200 million frames of each game).

`pip install 'ding_like[atari]'`.
"""

from ding_like.envs.atari_scores import ATARI_SCORES

main_config = dict(
    exp_name="atari57_impala_seed0",
    env=dict(
        tasks=[dict(type=f"ALE/{game}-v5", name=game) for game in ATARI_SCORES],
        env_kwargs=dict(full_action_space=True),
        wrappers=["full_actions", "atari", dict(type="frame_stack", n=4)],
        collector_env_num=57,
        evaluator_env_num=57,
        n_evaluator_episode=1,
        score="capped_normalised",
        stop_value=1.0,
    ),
    policy=dict(
        discount_factor=0.99,
        learn_unroll_len=20,
        model=dict(encoder_type="residual", encoder_hidden_size_list=[16, 32, 32, 256], share_encoder=True),
        learn=dict(batch_size=19, learning_rate=6e-4, reward_clip="abs_one"),
        collect=dict(n_sample=57),  # a trajectory of every game
        eval=dict(evaluator=dict(eval_freq=100_000, where="process")),
    ),
)
create_config = dict(
    env=dict(import_names=[]),
    env_manager=dict(type="base"),
    policy=dict(type="impala"),
)

if __name__ == "__main__":
    from ding_like.entry import async_pipeline

    async_pipeline((main_config, create_config), seed=0)
