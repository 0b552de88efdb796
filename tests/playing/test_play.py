"""`mlagents-play` as a person uses it."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from actors import make_actor
from document_examples import run_examples
from guess_environment import GuessEnvironment
from mlagents.playing.game import Game, RandomActor
from mlagents.playing.play import main
from mlagents.trainers.data.demonstrations import load_demonstrations
from mlagents.trainers.export.export import export_onnx
from mlagents_envs.base_env import ActionSpec, ActionTuple, DecisionSteps, TerminalSteps
from mlagents_envs.demonstration_file import read_demonstration
from mlagents_sim.examples.basic import Basic
from models import make_model, node
from shared_data import ROOT, require
from skirmish_environment import SCOUT, TANK, SkirmishEnvironment

ENVIRONMENT = "guess_environment:GuessEnvironment"


@pytest.fixture(autouse=True)
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_to_the_right(path: str, *, preference: float = 1.0, n_observed: int = 20) -> None:
    """Write a policy for Basic: to the right, whatever is seen."""
    model = make_model(
        [
            node("MatMul", "obs_0 zeros", "nothing"),
            node("Add", "nothing preference", "scores"),
            node("ArgMax", "scores", "discrete_actions", axis=1, keepdims=1),
            node("Identity", "discrete_actions", "deterministic_discrete_actions"),
        ],
        {"obs_0": [n_observed]},
        integers=["discrete_actions", "deterministic_discrete_actions"],
        constants={
            "version_number": [3],
            "memory_size": [0],
            "discrete_action_output_shape": [[3]],
        },
        weights={"zeros": np.zeros((20, 3)), "preference": [[0, 0, preference]]},
    )
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_bytes(model)


# ------------------------------------------------------------------------------------ what it shows


def test_a_policy_is_played_and_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    write_to_the_right("right.onnx")

    assert main(["--env", "Basic", "--model", "right.onnx", "--episodes", "5"]) == 0

    # Seven steps to the right: 1 - 7 * 0.01.
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith("[INFO] right.onnx runs on ")
    assert told[1:4] == [
        "Basic?team=0: 5 episodes",
        "  reward    mean 0.930 ± 0.000, std 0.000, min 0.930, max 0.930",
        "  length    mean 7.0 decisions",
    ]
    assert told[4].startswith("35 decisions in ")


def test_a_run_is_named_by_its_id_and_copies_of_the_area_share_the_episodes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_to_the_right("results/first/Basic/Basic-64.onnx")
    arguments = ["--env", "Basic", "--model", "first", "--num-areas", "3", "--deterministic"]

    assert main([*arguments, "--episodes", "4"]) == 0

    told = capsys.readouterr().out
    assert "results/first/Basic/Basic-64.onnx runs on" in told
    assert "Basic?team=0: 4 episodes" in told
    # Three begin at once, the fourth when those have ended, with two that do not count.
    assert "42 decisions in " in told


def test_a_policy_trained_in_unity_reaches_100_in_3dball(
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = require(ROOT / "models" / "3DBall.onnx")

    assert main(["--env", "3DBall", "--model", str(model), "--episodes", "12", "--seed", "1"]) == 0

    told = capsys.readouterr().out
    assert "3DBall?team=0: 12 episodes" in told
    assert "mean 100.000 ± 0.000, std 0.000" in told
    assert "mean 1000.0 decisions" in told


def test_play_is_recorded_to_learn_from(capsys: pytest.CaptureFixture[str]) -> None:
    write_to_the_right("right.onnx")
    arguments = ["--env", "Basic", "--model", "right.onnx", "--episodes", "3"]

    assert main([*arguments, "--record", "right.demo"]) == 0

    # Three episodes of seven steps and an end, and the first observation of a fourth, which no
    # action followed.
    assert capsys.readouterr().out.splitlines()[-1] == "24 records in right.demo"
    demonstration = read_demonstration("right.demo")
    assert demonstration.behavior_name == "Basic?team=0"
    records = demonstration.records
    assert [len(rows) for rows in records.episodes()] == [8, 8, 8]
    assert not records.interrupted.any()
    steps = load_demonstrations("right.demo", demonstration.spec)
    assert (steps.discrete == 2).all()
    # It sees the place it walks from, one further at every step.
    assert np.diff(steps.obs[0][:7].argmax(axis=1)).tolist() == [1] * 6


def test_of_several_behaviors_the_counted_one_is_recorded(
    capfd: pytest.CaptureFixture[str],
) -> None:
    play = ["--env", "skirmish_environment:SkirmishEnvironment", "--episodes", "1"]

    assert main([*play, "--behavior", "Tank", "--record", "tank.demo"]) == 0
    assert read_demonstration("tank.demo").behavior_name == TANK

    capfd.readouterr()
    assert main([*play, "--record", "all.demo"]) == 1
    [line] = capfd.readouterr().err.splitlines()
    assert re.search(r"expected one behavior .*\['Scout.*', 'Tank.*'\]\. Choose .*--behavior", line)
    assert not Path("all.demo").exists()


def test_what_was_played_until_an_interrupt_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt_after(monkeypatch, 10)
    assert main(["--env", ENVIRONMENT, "--episodes", "100", "--record", "some.demo"]) == 130
    # Eight agents, episodes of four steps, ten reports: two episodes each, and a third begun.
    assert len(read_demonstration("some.demo").records.episodes()) == 24


def lengths_in(told: str) -> float:
    [length] = re.findall(r"length +mean ([\d.]+) decisions", told)
    return float(length)


@pytest.mark.parametrize("in_process", [True, False])
def test_parameters_reach_the_environment(
    in_process: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    # Without weight to speak of, a ball stays on its cube for long, however that is turned.
    player = str(Path(sys.executable).with_name("mlagents-sim"))
    play = ["--env", "3DBall" if in_process else player, "--episodes", "12"]
    world = [] if in_process else ["--time-scale", "20", "--env-args", "3DBall"]

    assert main([*play, *world]) == 0
    usual = lengths_in(capsys.readouterr().out)
    assert main([*play, "--parameter", "gravity=0.1", "--parameter", "mass=2", *world]) == 0
    assert lengths_in(capsys.readouterr().out) > 2 * usual


def test_a_parameter_may_be_set_after_the_factory(capsys: pytest.CaptureFixture[str]) -> None:
    Path("plain_ball.py").write_text(
        "from mlagents_sim.examples.ball_3d import Ball3D\ndef make():\n    return Ball3D()\n"
    )
    play = ["--env", "plain_ball:make", "--episodes", "12"]
    assert main(["--env", "3DBall", *play[2:], "--parameter", "gravity=0.1"]) == 0
    told = capsys.readouterr().out
    assert main([*play, "--parameter", "gravity=0.1"]) == 0
    assert lengths_in(capsys.readouterr().out) == lengths_in(told)


def test_without_a_model_anything_is_done_and_this_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--env", ENVIRONMENT, "--episodes", "20", "--seed", "3"]) == 0
    first = capsys.readouterr().out
    assert main(["--env", ENVIRONMENT, "--episodes", "20", "--seed", "3"]) == 0

    assert "[INFO] Guess?team=0 acts at random, because it has no --model." in first
    assert "  length    mean 4.0 decisions" in first
    assert results_of(first) == results_of(capsys.readouterr().out), "the seed repeats it"


def results_of(told: str) -> list[str]:
    return [line for line in told.splitlines() if line.startswith("  ")]


def test_chance_is_fair_to_what_is_allowed() -> None:
    env = GuessEnvironment(ActionSpec.create_hybrid(1, (3,)), n_agents=1000)
    env.reset()
    decisions, terminals = env.get_steps(env.BEHAVIOR)
    action = RandomActor(env.spec.action_spec, seed=1).act(decisions, terminals)
    assert np.abs(action.continuous).max() <= 1
    # 500 of 1000 each; the standard deviation is 16. The third choice is forbidden.
    counts = np.bincount(action.discrete[:, 0], minlength=3)
    assert counts[2] == 0
    assert abs(counts[0] - 500) < 100


# ----------------------------------------------------------------------------------- many behaviors


class Noted:
    """Stands still; notes who asked it and whose end it learned of."""

    def __init__(self, spec: ActionSpec) -> None:
        self.spec = spec
        self.asked: list[list[int]] = []
        self.ended: list[int] = []

    def act(self, decisions: DecisionSteps, terminals: TerminalSteps) -> ActionTuple:
        self.asked.append(decisions.agent_id.tolist())
        self.ended += terminals.agent_id.tolist()
        return self.spec.empty_action(len(decisions))


def test_every_behavior_has_its_actor_and_its_tally() -> None:
    env = SkirmishEnvironment()
    actors: dict[str, Noted] = {}
    env.reset()
    game = Game(
        env,
        lambda name, spec: actors.setdefault(name, Noted(spec.action_spec)),
        n_episodes=1,
    )
    asking = list(game.play())

    # Scouts 1 and 2 and tank 3; scout 1 ends in the third report, tank 3 in the fourth.
    assert asking == [3, 3, 2, 3]
    assert game.n_decisions == 11
    assert actors[TANK].asked == [[3], [3], [], [3]]
    assert (actors[SCOUT].ended, actors[TANK].ended) == ([1], [3])
    assert {name: len(tally.episodes) for name, tally in game.tallies.items()} == {
        SCOUT: 1,
        TANK: 1,
    }


@pytest.mark.parametrize("only", ["Scout", SCOUT])
def test_one_behavior_can_be_counted_alone(only: str) -> None:
    env = SkirmishEnvironment()
    env.reset()
    game = Game(env, lambda _name, spec: Noted(spec.action_spec), n_episodes=1, only=only)
    assert len(list(game.play())) == 3
    assert game.tallies.keys() == {SCOUT}


def test_behaviors_get_their_own_models(capsys: pytest.CaptureFixture[str]) -> None:
    spec = SkirmishEnvironment().behavior_specs[SCOUT]
    Path("scout.onnx").write_bytes(export_onnx(make_actor(spec), spec))
    environment = ["--env", "skirmish_environment:SkirmishEnvironment", "--episodes", "1"]

    assert main([*environment, "--model", "Scout=scout.onnx"]) == 0

    told = capsys.readouterr().out
    assert "scout.onnx runs on" in told
    assert f"{TANK} acts at random" in told
    assert f"{SCOUT} acts at random" not in told
    assert f"{SCOUT}: 1 episodes" in told and f"{TANK}: 1 episodes" in told


# ------------------------------------------------------------------------------------------- films


def test_a_film_shows_every_step_at_the_worlds_speed() -> None:
    Image = pytest.importorskip("PIL.Image")
    write_to_the_right("right.onnx")
    play = ["--env", "Basic", "--model", "right.onnx", "--episodes", "2", "--render"]

    assert main([*play, "play.gif"]) == 0
    assert main([*play, "small.gif", "--size", "80x60", "--fps", "4", "--film-seconds", "1"]) == 0
    assert main([*play, "sheet.png"]) == 0

    # The beginning, seven steps, one in which the agent comes back, and seven more; 0.02 s each.
    with Image.open("play.gif") as gif:
        assert (gif.n_frames, gif.size, gif.info["duration"]) == (16, (640, 480), 20)
    with Image.open("small.gif") as gif:
        assert (gif.n_frames, gif.size, gif.info["duration"]) == (4, (80, 60), 250)
    with Image.open("sheet.png") as sheet:
        assert sheet.size == (3 * 640, 3 * 480)


def test_a_film_has_25_pictures_a_second_though_agents_decide_less_often() -> None:
    Image = pytest.importorskip("PIL.Image")
    play = ["--env", "3DBall", "--episodes", "1", "--render", "play.gif", "--size", "80x60"]
    assert main([*play, "--film-seconds", "0.2"]) == 0
    with Image.open("play.gif") as gif:  # 3DBall's agents decide every fifth step of 0.02 s
        assert (gif.n_frames, gif.info["duration"]) == (5, 40)


def test_filming_leaves_the_play_as_it_is(capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("PIL.Image")
    play = ["--env", "PushBlock", "--episodes", "1"]
    told = []
    for film in ([], ["--render", "play.png", "--size", "80x60"]):
        assert main([*play, *film]) == 0
        told.append(capfd.readouterr().out.partition("decisions in")[0])
    assert told[0] == told[1]


def test_a_film_of_one_agent_shows_it_larger() -> None:
    Image = pytest.importorskip("PIL.Image")
    play = ["--env", "3DBall", "--episodes", "1", "--film-seconds", "0.05", "--render"]
    assert main([*play, "all.png"]) == 0
    assert main([*play, "one.png", "--agents", "1"]) == 0
    n_orange = []
    for name in ("all", "one"):
        with Image.open(f"{name}.png") as image:
            red, _, blue = np.asarray(image.convert("RGB")).astype(int).transpose(2, 0, 1)
        n_orange.append(((red > 180) & (blue < 60)).sum())
    n_balls = 12
    assert n_orange[1] > 4 * n_orange[0] / n_balls


@pytest.mark.parametrize(
    ("picture", "found"),
    [
        (np.zeros((4, 8, 8, 3), np.uint8), r"an array \(4, 8, 8, 3\) of uint8"),
        (np.zeros((8, 8, 3)), r"an array \(8, 8, 3\) of float64"),
        (np.zeros((8, 8), np.uint8), r"an array \(8, 8\) of uint8"),
        (None, "a NoneType"),
    ],
)
def test_a_picture_that_is_none_is_an_error(
    picture: object, found: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("PIL.Image")
    monkeypatch.setattr(Basic, "scene", lambda self: None)
    monkeypatch.setattr(Basic, "render", lambda self: picture)
    assert main(["--env", "Basic", "--episodes", "1", "--render", "play.gif"]) == 1
    expected = rf"Basic\.render\(\) returned {found}; expected .*\(height, width, 3\) of uint8"
    assert re.search(expected, capfd.readouterr().err)


@pytest.mark.parametrize("suffix", [".gif", ".mp4", ".png", ".webp"])
def test_play_goes_on_without_a_film_that_cannot_be_written(
    suffix: str, working_directory: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("PIL.Image")
    pytest.importorskip("imageio_ffmpeg")
    resource = pytest.importorskip("resource", reason="the system cannot limit file sizes")
    film = working_directory / f"play{suffix}"
    film.write_bytes(b"old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        arguments = ["--env", "Basic", "--episodes", "3", "--render", film.name]
        assert main([*arguments, "--size", "320x240"]) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    told = capfd.readouterr()
    assert "Basic?team=0: 3 episodes" in told.out
    [warning] = [line for line in told.out.splitlines() if line.startswith("[WARNING]")]
    assert f"play{suffix}" in warning
    assert told.err == ""
    assert [*working_directory.iterdir()] == [film] and film.read_bytes() == b"old"


def test_a_model_that_does_not_fit_costs_no_film_of_before(working_directory: Path) -> None:
    pytest.importorskip("PIL.Image")
    write_to_the_right("right.onnx")
    Path("play.GIF").write_bytes(b"old")
    play = ["--env", "3DBall", "--model", "right.onnx", "--render", "play.GIF"]

    assert main(play) == 1

    assert Path("play.GIF").read_bytes() == b"old"
    assert {path.name for path in working_directory.iterdir()} == {"play.GIF", "right.onnx"}


# ------------------------------------------------------------------------------------ what is wrong


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--env", "Bsic"], "there is no executable 'Bsic', and .* did you mean 'Basic'?"),
        (["--env", "./nothing"], "cannot find the executable './nothing'"),
        (["--env", "guess_environment:GuesEnvironment"], "did you mean 'GuessEnvironment'"),
        (["--env", "Basic", "--model", "nowhere"], "there is no model 'nowhere'"),
        (["--model", "nowhere"], "there is no model 'nowhere'"),  # without waiting for the Editor
        (["--tournament", "one", "two"], "there is no model 'one'"),
        (["--env", "Basic", "--model", "junk.onnx"], "junk.onnx is not an ONNX model"),
        (["--env", ENVIRONMENT, "--model", "right.onnx"], "does not fit the behavior 'Guess"),
        (["--env", "Basic", "--model", "Basics=right.onnx"], "no behavior 'Basics'. Its .* Basic"),
        (["--env", "Basic", "--behavior", "Basics"], "the environment has no behavior 'Basics'"),
        (["--env", ENVIRONMENT, "--render", "play.gif"], "GuessEnvironment draws no pictures"),
        (["--env", "Basic", "--render", "nowhere/play.gif"], "No such file .*nowhere/play.gif"),
        (["--env", "Basic", "--record", "nowhere/a.demo"], "No such file .*nowhere/a.demo"),
        (["--env", "3DBall", "--parameter", "gravty=1"], "'gravty'; did you mean 'gravity'"),
        (
            ["--env", ENVIRONMENT, "--parameter", "size=1"],
            "--parameter: GuessEnvironment has no environment parameters, got size",
        ),
        (["--env", "Basic", "--model", "nan.onnx"], "nan.onnx has NaN in its weights 'preference'"),
        (["--env", "Basic", "--model", "huge.onnx"], "huge.onnx .* takes 'obs_0' of any x 21474"),
        (
            ["--env", "guess_environment:BadObservations"],
            "'Guess.team=0', observation 'number': agent 2 observes inf at",
        ),
        (
            ["--env", "guess_environment:BadRewards"],
            "'Guess.team=0': agent 1 has the reward nan and the group reward 0.0; both must",
        ),
    ],
)
def test_what_is_wrong_is_told_in_one_line(
    arguments: list[str], text: str, capfd: pytest.CaptureFixture[str]
) -> None:
    write_to_the_right("right.onnx")
    write_to_the_right("nan.onnx", preference=np.nan)
    write_to_the_right("huge.onnx", n_observed=2**31)
    Path("junk.onnx").write_bytes(b"junk")

    assert main(arguments) == 1

    [line] = capfd.readouterr().err.splitlines()
    assert line.startswith("mlagents-play: ")
    assert re.search(text, line), line


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--episodes", "0"], "expected at least 1, got 0"),
        (["--episodes", "many"], "'many' is not a whole number"),
        (["--render", "play.avi"], "'play.avi' does not end in .gif, .mp4, .png, .webp"),
        (["--size", "640"], "'640' is not a size: expected WIDTHxHEIGHT, for example 640x480"),
        (["--fps", "0"], "'0' is not a positive number"),
        (["--fps", "200"], "'200' is too large: expected at most 100"),
        (["--base-port", "70000"], "'70000' is not a port"),
        (["--model", "=a.onnx"], "expected PATH or BEHAVIOR=PATH"),
        (["--record", "play.gif"], "play.gif: the name of a demonstration must end in .demo"),
        (["--parameter", "gravity"], "'gravity' is not NAME=NUMBER"),
        (["--parameter", "gravity=nan"], "'gravity=nan' is not NAME=NUMBER: expected a finite"),
        (["--parameter", "=1"], "'=1' is not NAME=NUMBER"),
        (["--parameter", "a=1", "--parameter", "a=2"], "--parameter is given twice"),
        (["--model", "a.onnx", "--model", "b.onnx"], "--model is given twice"),
        (["--model", "A=a.onnx", "--model", "A=b.onnx"], "--model is given twice"),
    ],
)
def test_a_command_line_that_cannot_be_understood_exits_with_2(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--env", "Basic", *arguments])
    assert ended.value.code == 2
    assert text in capsys.readouterr().err


def test_a_file_whose_name_has_an_equals_sign_is_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    write_to_the_right("a=b.onnx")
    assert main(["--env", "Basic", "--model", "a=b.onnx", "--episodes", "1"]) == 0
    assert "mean 0.930" in capsys.readouterr().out


def interrupt_after(monkeypatch: pytest.MonkeyPatch, n_reports: int) -> None:
    """Let Ctrl-C be pressed when an actor that acts at random is asked once more."""
    act, reports = RandomActor.act, iter(range(n_reports))

    def interrupted(*arguments: object) -> ActionTuple:
        if next(reports, None) is None:
            raise KeyboardInterrupt
        return act(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(RandomActor, "act", interrupted)


def test_what_was_counted_is_told_when_interrupted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    interrupt_after(monkeypatch, 10)

    assert main(["--env", ENVIRONMENT, "--episodes", "100"]) == 130

    # Eight agents, episodes of four steps, ten reports: two episodes each.
    assert "Guess?team=0: 16 of 100 episodes" in capsys.readouterr().out


def test_who_has_read_enough_of_the_results_ends_nothing_in_an_error() -> None:
    program = "import sys; from mlagents.playing.play import main; sys.exit(main(sys.argv[1:]))"
    play = subprocess.Popen(
        [sys.executable, "-c", program, "--env", "3DBall", "--episodes", "100"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert play.stdout is not None
    assert play.stdout.readline().startswith("[INFO] 3DBall?team=0 acts at random")
    play.stdout.close()
    assert play.communicate(timeout=60)[1] == ""
    assert play.returncode == 0


def test_players_in_other_processes_are_played_with(capsys: pytest.CaptureFixture[str]) -> None:
    write_to_the_right("right.onnx")
    player = str(Path(sys.executable).with_name("mlagents-sim"))
    arguments = ["--env", player, "--model", "right.onnx", "--episodes", "2", "--num-areas", "2"]

    assert main([*arguments, "--time-scale", "20", "--env-args", "Basic"]) == 0

    told = capsys.readouterr().out
    assert "Basic?team=0: 2 episodes" in told and "mean 0.930" in told
    assert main([*arguments, "--render", "play.gif", "--env-args", "Basic"]) == 1


def test_nothing_that_only_training_needs_is_loaded() -> None:
    program = (
        "import sys; from mlagents.playing.play import main\n"
        "main(['--env', 'Basic', '--episodes', '1'])\n"
        "print({'torch', 'pydantic', 'yaml', 'rich', 'tensorboard'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "set()", done.stderr


def test_the_program_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    write_to_the_right("results/first/Basic.onnx")
    assert run_examples("playing.md") == 1
    assert capsys.readouterr().out.splitlines()[-1] == "[0.99]"
