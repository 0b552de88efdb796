import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlagents_envs.base_env import BehaviorId, behavior_name_problem, check_behavior_name, is_named
from mlagents_envs.exception import UnityEnvironmentException


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
        ("a?team=" + "1" * 5000, "a?team=" + "1" * 5000, 0),
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


@pytest.mark.parametrize(
    ("behavior", "problem"),
    [
        ("", "empty"),
        ("?team=0", "empty"),
        (" a", "space"),
        ("..", "dot"),
        (".hidden", "dot"),
        ("/etc/passwd", "slash"),
        ("../../EVIL?team=0", "slash"),
        ("a/b", "slash"),
        ("a\\b", "slash"),
        ("C:\\b", "slash"),
        ("a\0b", "cannot be printed"),
        ("a\x1b[31m", "cannot be printed"),
        ("a\nb", "cannot be printed"),
        ("\u202ecod.exe", "cannot be printed"),
        ("x?team=", "question mark"),
        ("x?team=" + "1" * 5000, "question mark"),
        ("x?team=1?team=0", "question mark"),
        ("n" * 250, "250 bytes"),
        ("ü" * 101, "202 bytes"),
    ],
)
def test_a_name_that_is_not_a_folder_is_refused(behavior: str, problem: str) -> None:
    assert problem in behavior_name_problem(behavior)
    with pytest.raises(UnityEnvironmentException, match=problem) as caught:
        check_behavior_name(behavior)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    "behavior", ["3DBall", "My Behavior?team=1", "Größe-2.1_(new)", "n" * 200, "a?team=-1", "a..b"]
)
def test_an_ordinary_name_is_taken(behavior: str) -> None:
    check_behavior_name(behavior)
