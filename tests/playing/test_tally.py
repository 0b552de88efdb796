"""Episodes are counted by when they begin."""

import numpy as np
import pytest

from mlagents.playing.tally import Episode, Tally
from scripted_environment import BEHAVIOR, Asks, Ends, Message, ScriptedEnvironment


def count(n_episodes: int, *script: Message) -> Tally:
    """Count what a script says."""
    env = ScriptedEnvironment(script)
    tally = Tally(n_episodes)
    env.reset()
    tally.observe(*env.get_steps(BEHAVIOR))
    for _ in script[1:]:
        env.step()
        tally.observe(*env.get_steps(BEHAVIOR))
    return tally


def test_rewards_are_summed_from_the_first_decision_on() -> None:
    # Before its first decision 100; then own 1 and the group's 0.5; at the end 2 and 0.25.
    tally = count(
        1,
        [Asks(5, 0, reward=100)],
        [Asks(5, 0, reward=1, group=1, group_reward=0.5)],
        [Ends(5, 0, reward=2, group=1, group_reward=0.25)],
    )
    assert tally.is_complete
    assert tally.episodes == [Episode(3.75, 2)]


def test_rewards_that_a_group_earns_after_an_agent_has_left_count() -> None:
    # Agent 1 leaves; then the group earns 2 and 3. Agent 3 of another group gets none of it.
    tally = count(
        3,
        [Asks(1, 0, group=1), Asks(2, 0, group=1), Asks(3, 0, group=2)],
        [
            Ends(1, 0, reward=1, group=1, group_reward=0.5),
            Asks(2, 0, group=1, group_reward=0.5),
            Asks(3, 0, group=2),
        ],
        [Asks(2, 0, group=1, group_reward=2), Ends(3, 0, reward=1, group=2)],
        [Ends(2, 0, reward=4, group=1, group_reward=3)],
    )
    assert tally.episodes == [Episode(1, 2), Episode(1 + 5.5, 1), Episode(4 + 5.5, 3)]


def test_a_group_id_may_come_back() -> None:
    # Agent 1 leaves the first group, whose other member ends in the report in which both join the
    # next group of that id.
    tally = count(
        4,
        [Asks(1, 0, group=1), Asks(2, 0, group=1)],
        [Ends(1, 0, group=1), Asks(2, 0, group=1)],
        [Ends(2, 0, group=1, group_reward=1), Asks(1, 0, group=1), Asks(2, 0, group=1)],
        [Ends(1, 0, group=1, group_reward=7), Ends(2, 0, group=1, group_reward=7)],
    )
    assert tally.episodes == [Episode(1, 1), Episode(1, 2), Episode(7, 1), Episode(7, 1)]


def test_forgotten_episodes_of_groups_give_their_places_to_others() -> None:
    tally = Tally(2)
    both = ScriptedEnvironment([[Asks(1, 0, group=1), Asks(2, 0, group=1)]])
    both.reset()
    tally.observe(*both.get_steps(BEHAVIOR))
    one = ScriptedEnvironment([[Ends(1, 0, group=1), Asks(2, 0, group=1)]])
    one.reset()
    tally.observe(*one.get_steps(BEHAVIOR))
    tally.forget()
    for script in ([Asks(3, 0), Asks(4, 0)], [Ends(3, 0, reward=1), Ends(4, 0, reward=2)]):
        env = ScriptedEnvironment([script])
        env.reset()
        tally.observe(*env.get_steps(BEHAVIOR))
    assert tally.episodes == [Episode(1, 1), Episode(2, 1)]


def test_an_agent_that_ends_and_begins_anew_in_one_report_has_two_episodes() -> None:
    tally = count(
        2,
        [Asks(5, 0)],
        [Ends(5, 0, reward=1), Asks(5, 0, reward=7)],  # the 7 is of no decision of the new one
        [Ends(5, 0, reward=2)],
    )
    assert tally.episodes == [Episode(1, 1), Episode(2, 1)]


def test_the_first_to_begin_count_and_not_the_first_to_end() -> None:
    # Two count. Agent 2 ends three times before agent 1 ends once.
    tally = count(
        2,
        [Asks(1, 0), Asks(2, 0)],
        [Asks(1, 0), Ends(2, 0, reward=5), Asks(2, 0)],
        [Asks(1, 0), Ends(2, 0, reward=6), Asks(2, 0)],
        [Ends(1, 0, reward=1), Ends(2, 0, reward=7)],
    )
    assert tally.episodes == [Episode(5, 1), Episode(1, 3)]


def test_it_is_incomplete_while_one_that_counts_goes_on() -> None:
    tally = count(
        2, [Asks(1, 0), Asks(2, 0)], [Asks(1, 0), Ends(2, 0), Asks(2, 0)], [Asks(1, 0), Ends(2, 0)]
    )
    assert len(tally.episodes) == 1
    assert not tally.is_complete


def test_who_ends_without_a_decision_had_no_episode() -> None:
    assert count(1, [Ends(1, 0, reward=1)]).episodes == []


@pytest.mark.parametrize("n_agents", [1, 7, 32])
def test_many_agents_at_once_do_not_favor_short_episodes(n_agents: int) -> None:
    # Lengths are 1 or 9, equally likely: 5 on average. Of what ends first, more would be 1.
    rng = np.random.default_rng(1)
    n_episodes = 1000
    tally = Tally(n_episodes)
    left = np.zeros(n_agents, int)
    env = ScriptedEnvironment([[]])
    while not tally.is_complete:
        ended = np.flatnonzero(left == 0)
        left[ended] = rng.choice([1, 9], len(ended))
        env = ScriptedEnvironment(
            [[*(Ends(a, 0) for a in ended.tolist()), *(Asks(a, 0) for a in range(n_agents))]]
        )
        env.reset()
        tally.observe(*env.get_steps(BEHAVIOR))
        left -= 1
    lengths = [episode.length for episode in tally.episodes]
    assert {*lengths} == {1, 9}
    # The standard error is 4 / sqrt(1000) = 0.13.
    assert np.mean(lengths) == pytest.approx(5, abs=0.5)
