"""The page of the live view. These tests open it, but no browser."""

import re
import socket
import sys
import threading
import urllib.request

import numpy as np
import pytest

from mlagents.viewing import page as page_module
from mlagents.viewing.agent_panel import picture_of
from mlagents.viewing.page import Page
from mlagents.viewing.stage import Stage
from mlagents_envs.exception import UnityEnvironmentException
from mlagents_sim.catalog import CATALOG

try:
    import viser  # noqa: F401
except ModuleNotFoundError:
    pytest.skip("viser is not installed", allow_module_level=True)


def moment_of(env, stage: Stage):
    env.reset()
    stage.is_watched = True
    steps = {name: env.get_steps(name) for name in env.behavior_specs}
    actions = {
        name: spec.action_spec.empty_action(len(steps[name][0]))
        for name, spec in env.behavior_specs.items()
    }
    stage.offer(env, env.behavior_specs, steps, actions)
    return stage.take(0.0)


@pytest.mark.parametrize("world", ["Basic", "Crawler", "GridWorld", "SoccerTwos", "Visual3DBall"])
def test_a_page_draws_a_world_and_its_agent(world: str) -> None:
    env = CATALOG[world].make(seed=0, keep_8_bit_images=True)
    stage = Stage()
    with Page(stage, port=0, title=world) as page:
        moment = moment_of(env, stage)
        page._draw(moment)
        page._agent.show(moment)
        page._agent.show(moment)  # updates what the first call added
        shown = {kind.name for kind in moment.scene.solids if len(kind.position)}
        assert set(page._meshes._handles) == shown
        assert "Agent id 0 of" in page._agent._text.content
        assert len(page._agent._handles) == len(next(iter(env.behavior_specs.values()))[0])


def test_the_page_is_for_this_machine_and_needs_no_other() -> None:
    with Page(Stage(), port=0, title="world") as page:
        assert page.url == f"http://127.0.0.1:{page.port}"
        with urllib.request.urlopen(page.url) as answer:
            text = answer.read().decode()
        # The page is one file: it loads no script, style or font from elsewhere.
        assert not re.findall(r"<(?:script|link)[^>]+(?:src|href)=[\"']https?://", text)
        with pytest.raises(OSError), socket.create_connection(("127.0.0.2", page.port), 1.0):
            pass


def test_a_port_in_use_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UnityEnvironmentException, match=f"port {port} of 127.0.0.1"):
            Page(Stage(), port=port, title="world")


def test_closing_twice_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    page = Page(Stage(), port=0, title="world")
    page.close()
    page.close()
    left = [t for t in set(threading.enumerate()) - before if t.name == "live view"]
    assert not left


def test_nobody_watches_at_first() -> None:
    stage = Stage()
    with Page(stage, port=0, title="world") as page:
        assert not page.is_open_somewhere
        assert not stage.is_watched


def test_an_area_alone_and_a_followed_agent() -> None:
    env = CATALOG["PushBlock"].make(seed=0)
    stage = Stage()
    with Page(stage, port=0, title="world") as page:
        page.follow(5)
        moment = moment_of(env, stage)
        page._draw(moment)
        assert page._view._area.value == 6
        scales = page._meshes._sent["agent"].scales
        assert np.flatnonzero(scales[:, 0]).tolist() == [5]
        page._view._follow.value = True
        page._draw(moment)
        sent = page._meshes._sent["agent"].positions[5]
        np.testing.assert_allclose(page._meshes._root.position, -sent, atol=1e-5)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "viser", None)
    with pytest.raises(ModuleNotFoundError, match=r"--view needs the package viser.*Install"):
        page_module.Page(Stage(), port=0, title="world")


def test_pictures_of_any_number_of_channels() -> None:
    assert picture_of(np.zeros((3, 64, 84), np.uint8)).shape == (192, 252, 3)
    assert picture_of(np.zeros((12, 84, 84), np.float32)).shape == (255, 340, 3)
    assert picture_of(np.full((1, 2, 2), 0.5)).max() == 127
