import pytest

from mlagents_envs.suggestions import did_you_mean


@pytest.mark.parametrize(
    ("name", "n", "text"),
    [
        ("3dball", 1, "; did you mean '3DBall'?"),
        ("3DBal", 2, "; did you mean '3DBall' or '3DBallHard'?"),
        ("Walker", 3, ""),
        (7, 1, ""),
    ],
)
def test_the_closest_names_are_suggested_whatever_their_case(
    name: object, n: int, text: str
) -> None:
    assert did_you_mean(name, ["3DBall", "3DBallHard", "Basic"], n=n) == text
