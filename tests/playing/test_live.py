"""Play in a live view. These tests press what a browser would press."""

from pathlib import Path

import numpy as np
import pytest

from mlagents.playing.game import Game, RandomActor
from mlagents.playing.live import Human, HumanActor, LivePlay, checkpoints_of
from mlagents.playing.policy import Policy
from mlagents.viewing.held import HeldControls
from mlagents.viewing.page import Page
from mlagents.viewing.stage import Stage
from mlagents_envs.checked_env import checked
from mlagents_envs.demonstration_file import read_demonstration
from mlagents_envs.demonstration_recorder import DemonstrationRecorder
from mlagents_envs.scene import Control
from mlagents_sim.examples.basic import Basic
from mlagents_sim.examples.grid_world import GridWorld
from models import make_model, node

try:
    import viser  # noqa: F401
except ModuleNotFoundError:
    pytest.skip("viser is not installed", allow_module_level=True)

NAME = Basic.behavior_name
RIGHT = Control("right", "D", 0, 2)


def policy_for_basic(preference: float = 1.0, *, n_observed: int = 20) -> bytes:
    """Return a policy for Basic: to the right, whatever is seen."""
    return make_model(
        [
            node("MatMul", "obs_0 zeros", "nothing"),
            node("Add", "nothing preference", "scores"),
            node("Multinomial", "scores", "discrete_actions", dtype=7, sample_size=1),
        ],
        {"obs_0": [n_observed]},
        integers=["discrete_actions"],
        constants={
            "version_number": [3],
            "memory_size": [0],
            "discrete_action_output_shape": [[3]],
        },
        weights={"zeros": np.zeros((n_observed, 3)), "preference": [[0, 0, preference]]},
    )


class Session:
    """A live play of a world, without pace."""

    def __init__(self, env, *, human=None, recorder=None, runs=None):
        self.source = checked(env)
        self.stage = Stage()
        self.page = Page(self.stage, port=0, title="world")
        self.env = recorder or self.source
        self.env.reset()
        spec = next(iter(env.behavior_specs.values()))
        self.n_loaded = 0

        def make_actor(name, spec):
            actor = RandomActor(spec.action_spec, seed=0)
            return actor if human is None else HumanActor(human, actor, spec)

        def load(model, name, spec):
            if isinstance(model, Path):
                policy = Policy.load(model)
            else:
                policy = Policy(model[1], name=model[0])
            policy.check(spec, name)
            return policy

        self.game = Game(self.env, make_actor, n_episodes=10**9)
        self.live = LivePlay(
            self.env,
            self.source,
            self.game,
            self.page,
            self.stage,
            human=human,
            load=load,
            runs=runs or {},
        )
        self.live._pace._pace.value = 7  # as fast as possible
        self.spec = spec

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.page.close()

    def run(self, n_rounds, monkeypatch):
        """Play some rounds as if a browser was there."""
        monkeypatch.setattr(Page, "is_open_somewhere", True)
        for n, _ in enumerate(self.live.play(), 1):
            if n == n_rounds:
                break


def test_a_person_acts_for_one_agent_and_alone_is_recorded(tmp_path, monkeypatch):
    env = Basic(num_areas=3)
    held = HeldControls()
    human = Human(env, None, held)
    held.toggle(RIGHT)
    path = tmp_path / "mine.demo"
    recorder = DemonstrationRecorder(env, path, is_recorded=human.is_it)
    with Session(env, human=human, recorder=recorder) as session:
        session.run(30, monkeypatch)
    recorder.close()
    records = read_demonstration(path).records
    assert set(records.action.discrete[:, 0].tolist()) == {2}
    ends = np.flatnonzero(records.done)
    assert len(ends) > 2
    # Seven steps to the large goal and a record of the end, although ids change at each.
    assert ends[0] == 7
    assert np.diff(ends)[:2].tolist() == [8, 8]


def test_a_good_upload_acts_at_once_and_a_bad_one_changes_nothing(monkeypatch):
    with Session(Basic()) as session:
        panel = session.live._policies[NAME]
        for name, content, expected in (
            ("text.onnx", b"not a model", "not an ONNX model"),
            ("other.onnx", policy_for_basic(n_observed=7), "does not fit the behavior"),
        ):
            session.live._use(NAME, (name, content))
            assert expected in panel._text.content
            assert "at random" in panel._text.content
            assert isinstance(session.game.actors[NAME], RandomActor)
        session.live._use(NAME, ("good.onnx", policy_for_basic(50.0)))
        assert panel._text.content == "good.onnx acts."
        session.run(20, monkeypatch)
        assert session.game.latest[NAME].action.discrete.tolist() in ([[2]], [])
        assert session.game.tallies[NAME].episodes[-1].reward == pytest.approx(0.93, abs=0.2)


def test_the_slider_chooses_a_checkpoint(tmp_path, monkeypatch):
    folder = tmp_path / "Basic"
    folder.mkdir()
    for step in (100, 20, 3):
        folder.joinpath(f"Basic-{step}.onnx").write_bytes(policy_for_basic(float(step)))
    folder.joinpath("Basic-x.onnx").write_bytes(b"")
    names = [path.stem for path in checkpoints_of(tmp_path, "Basic")]
    assert names == ["Basic-3", "Basic-20", "Basic-100"]
    with Session(Basic(), runs={NAME: tmp_path}) as session:
        panel = session.live._policies[NAME]
        session.live._use(NAME, checkpoints_of(tmp_path, "Basic")[0])
        assert "Basic-3.onnx acts" in panel._text.content


def test_the_probabilities_of_choices_are_shown(monkeypatch):
    with Session(Basic()) as session:
        session.stage.is_watched = True
        session.live._use(NAME, ("good.onnx", policy_for_basic(math_log_8())))
        session.run(1, monkeypatch)
        moment = session.stage.take(0.0) or session.stage.take(1.0)
        np.testing.assert_allclose(moment.probabilities[NAME][0], [[0.1, 0.1, 0.8]], rtol=1e-5)


def math_log_8() -> float:
    return float(np.log(8.0))


def test_a_parameter_that_leaves_no_room_is_put_back(monkeypatch):
    env = GridWorld()
    with Session(env) as session:
        session.live._put("gridSize", 0.0)
        session.run(60, monkeypatch)  # long enough for an episode to begin
        assert env.parameters["gridSize"] == 5.0
        session.live._put("numPlusGoals", 3.0)
        assert env.parameters["numPlusGoals"] == 3.0


def test_play_is_ended_from_the_page(monkeypatch):
    monkeypatch.setattr(Page, "is_open_somewhere", True)
    with Session(Basic()) as session:
        rounds = session.live.play()
        next(rounds)
        session.live._requests.put(session.live._end)
        assert list(rounds) == []


def test_a_reset_drops_running_episodes(monkeypatch):
    with Session(Basic()) as session:
        session.run(2, monkeypatch)
        session.live._reset()
        assert session.game.tallies[NAME]._running == {}
        session.run(2, monkeypatch)
