import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlagents_envs.base_env import BehaviorId, is_named


@pytest.mark.parametrize(
    ("full_name", "name", "team"),
    [
        ("3DBall", "3DBall", 0),
        ("Soccer?team=1", "Soccer", 1),
        ("Soccer?team=12", "Soccer", 12),
        ("Soccer?team=-1", "Soccer", -1),
        # Anything else is part of the name.
        ("", "", 0),
        ("Soccer?team=", "Soccer?team=", 0),
        ("Soccer?team=red", "Soccer?team=red", 0),
        ("Soccer?team=1.5", "Soccer?team=1.5", 0),
        ("a:b#c;d?e", "a:b#c;d?e", 0),
        ("a?team=1?team=2", "a?team=1", 2),
    ],
)
def test_parse(full_name: str, name: str, team: int) -> None:
    assert BehaviorId.parse(full_name) == BehaviorId(name, team)


@settings(deadline=None)
@given(st.text(), st.integers(0, 1000))
def test_any_name_with_a_team_comes_apart_again(name: str, team: int) -> None:
    assert BehaviorId.parse(f"{name}?team={team}") == BehaviorId(name, team)


@pytest.mark.parametrize(
    ("behavior", "name", "is_meant"),
    [
        ("Soccer?team=1", "Soccer?team=1", True),
        ("Soccer?team=1", "Soccer", True),
        ("Soccer?team=1", "Soccer?team=0", False),
        ("Soccer", "Soccer", True),
        ("Soccer", "Soccer?team=0", False),
        ("SoccerTwos?team=0", "Soccer", False),
    ],
)
def test_a_behavior_is_named_with_or_without_its_team(
    behavior: str, name: str, is_meant: bool
) -> None:
    assert is_named(behavior, name) == is_meant
