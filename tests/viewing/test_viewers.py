"""Browsers that watch: many, and slow ones."""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from mlagents.viewing.page import Page
from mlagents.viewing.stage import Stage
from mlagents_sim.examples.basic import Basic

try:
    from websockets.sync.client import ClientConnection

    from page_browser import open_page
except ModuleNotFoundError:
    pytest.skip("viser is not installed", allow_module_level=True)

NAME = Basic.behavior_name
LIMIT_S = 60.0


@pytest.fixture
def page_and_stage() -> Iterator[tuple[Page, Stage]]:
    stage = Stage()
    with Page(stage, port=0, title="world") as page:
        yield page, stage


def play_until(done, stage: Stage) -> None:
    """Step a world and offer its reports until something is so."""
    env = Basic()
    env.reset()
    until_s = time.monotonic() + LIMIT_S
    while not done():
        assert time.monotonic() < until_s
        decisions, terminals = env.get_steps(NAME)
        action = env.behavior_specs[NAME].action_spec.empty_action(len(decisions))
        env.set_actions(NAME, action)
        stage.offer(env, env.behavior_specs, {NAME: (decisions, terminals)}, {NAME: action})
        env.step()
        time.sleep(0)  # lets the page's threads run


def test_a_browser_is_sent_the_scene(page_and_stage) -> None:
    page, stage = page_and_stage
    with closing(open_page(page.url)):
        play_until(lambda: page._meshes._sent, stage)
        assert page.is_open_somewhere
    play_until(lambda: not page.is_open_somewhere and not stage.is_watched, stage)


def test_many_browsers_that_read_nothing_stop_nobody(page_and_stage) -> None:
    # None of them reads, so whatever they are sent piles up: play goes on all the same.
    page, stage = page_and_stage
    with ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(closing(open_page(page.url)))
        play_until(lambda: len(page._server.get_clients()) == 20, stage)
        begun = stage._n_reports
        play_until(lambda: stage._n_reports > begun + 2000, stage)
        assert page._thread.is_alive()


@pytest.mark.slow
def test_a_hundred_browsers_and_one_that_stalls_stop_nobody(page_and_stage) -> None:
    page, stage = page_and_stage
    has_ended, n_read = threading.Event(), [0] * 100

    def read(connections: list[ClientConnection]) -> None:
        while not has_ended.is_set():
            for number, connection in enumerate(connections):
                try:
                    connection.recv(timeout=0)
                    n_read[number] += 1
                except TimeoutError:
                    has_ended.wait(0.001)

    with ExitStack() as stack:
        connections = [stack.enter_context(closing(open_page(page.url))) for _ in range(101)]
        reader = threading.Thread(target=read, args=(connections[1:],))  # the first one stalls
        reader.start()
        try:
            play_until(lambda: len(page._server.get_clients()) == 101, stage)
            begun = stage._n_reports
            play_until(lambda: stage._n_reports > begun + 2000, stage)
            play_until(lambda: min(n_read) > 0, stage)
            assert page._thread.is_alive()
        finally:
            has_ended.set()
            reader.join()


def test_an_error_of_the_page_ends_the_page_alone(page_and_stage, monkeypatch) -> None:
    page, stage = page_and_stage

    def fail(moment: object) -> None:
        raise RuntimeError("the page is broken")

    monkeypatch.setattr(page._view, "show", fail)
    with closing(open_page(page.url)):
        play_until(lambda: not page._thread.is_alive(), stage)
    assert not stage.is_watched
