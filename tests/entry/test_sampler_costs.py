"""What `auto` foretells of the samplers."""

from ding_like.entry.sampling import HAND_OFF_S, Costs


def test_no_sampler_is_foretold_to_do_more_than_the_cores_can():
    costs = Costs(env=430e-6, act=5.6e-3, act_half=3.9e-3, act_part=3.9e-3)  # Pong, Nature network, 16 columns
    for cores in (1, 2, 4):
        for name, seconds in costs.predict(16, 2, cores, 64).items():
            least = 16 * costs.env + (costs.act if name in ("serial", "server") else 2 * costs.act_half)
            assert seconds >= least / min(cores, 3), (name, cores)


def test_alternating_hides_the_shorter_of_stepping_and_acting():
    envs = Costs(env=1e-3, act=2e-3, act_half=1e-3, act_part=1e-3).predict(16, 2, 8, 64)
    acts = Costs(env=1e-4, act=2e-2, act_half=1e-2, act_part=1e-2).predict(16, 2, 8, 64)
    assert envs["alternating"] == 1e-3 + 8 * 1e-3 + 2 * HAND_OFF_S  # one half's turn
    assert acts["alternating"] == 2e-2 + 2 * HAND_OFF_S < acts["server"]


def test_cheap_envs_stay_here_where_a_block_is_a_row_and_workers_share_a_core():
    found = Costs(env=5e-6, act=5e-5, act_half=4e-5, act_part=4e-5).predict(16, 2, 1, 1)
    assert min(found, key=found.get) == "serial"
