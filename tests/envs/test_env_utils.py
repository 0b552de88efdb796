import sys

import pytest

from mlagents_envs import env_utils
from mlagents_envs.exception import UnityEnvironmentException


@pytest.fixture
def build(tmp_path):
    path = tmp_path / "Game.x86_64"
    path.write_text(f"#!{sys.executable}\nimport sys\nsys.exit(len(sys.argv))\n")
    path.chmod(0o755)
    return path


@pytest.mark.skipif(sys.platform != "linux", reason="the build is one for Linux")
def test_a_build_is_found_and_launched_by_its_name_without_suffix(build):
    name = str(build.with_suffix(""))
    assert env_utils.validate_environment_path(name) == str(build)
    process = env_utils.launch_executable(name, ["a", "b"])
    assert process.wait(60) == 3


def test_what_is_no_build_is_not_found_and_not_launched(tmp_path):
    nowhere = str(tmp_path / "Game")
    assert env_utils.validate_environment_path(nowhere) is None
    with pytest.raises(UnityEnvironmentException, match="cannot find the executable"):
        env_utils.launch_executable(nowhere, [])


def test_the_platform_is_what_python_calls_it():
    assert env_utils.get_platform() == sys.platform
