"""The panel of one agent: its rewards, observations, actions and action probabilities."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mlagents.viewing.stage import Moment, Stage
from mlagents_envs.base_env import (
    BehaviorName,
    BehaviorSpec,
    DecisionSteps,
    ObservationSpec,
)

if TYPE_CHECKING:
    import viser

_MOST_LISTED = 16
"""Numbers that are written out; more of them are plotted."""
_PICTURE_PIXELS = 256


class AgentPanel:
    """Shows an agent that the user chooses.

    Args:
        gui: Side bar of the page.
        stage: Stage that adds up the agent's reward.
    """

    def __init__(self, gui: "viser.GuiApi", stage: Stage) -> None:
        self._gui, self._stage = gui, stage
        with gui.add_folder("Agent"):
            self._choice: Any = gui.add_slider("Agent", min=0, max=1, step=1, initial_value=0)
            self._text = gui.add_markdown("No agent has reported yet.")
            self._actions = gui.add_markdown("")
        self._choice.on_update(self._choose)
        self._observations = gui.add_folder("Observations", expand_by_default=False)
        self._handles: list[Any] = []
        self._shown: BehaviorName | None = None

    def show(self, moment: Moment) -> None:
        """Show the chosen agent, if it asks for a decision in this moment."""
        ids = moment.agent_ids()
        if not ids:
            return
        if self._choice.max != max(1, len(ids) - 1):
            self._choice.max = max(1, len(ids) - 1)
        agent = ids[min(self._stage.followed, len(ids) - 1)]
        for name, (decisions, _) in moment.steps.items():
            rows = np.flatnonzero(decisions.agent_id == agent)
            if rows.size:
                self._show_agent(moment, name, decisions, int(rows[0]))
                return

    def choose(self, agent: int) -> None:
        """Show another agent, by its index."""
        self._stage.followed = agent
        self._choice.max = max(self._choice.max, agent)
        self._choice.value = agent

    def _choose(self, event: "viser.GuiEvent[Any]") -> None:
        self._stage.followed = int(event.target.value)

    def _show_agent(
        self, moment: Moment, name: BehaviorName, decisions: DecisionSteps, row: int
    ) -> None:
        spec = moment.specs[name]
        group = int(decisions.group_id[row])
        lines = [
            f"Agent id {decisions.agent_id[row]} of **{name}**"
            + (f", group {group}" * (group > 0)),
            f"Reward {decisions.reward[row] + decisions.group_reward[row]:.4g}, since the episode "
            f"began {moment.reward:.4g}",
        ]
        self._text.content = "  \n".join(lines)
        self._actions.content = _actions_in_words(moment, name, spec, row)
        if self._shown != name:
            self._shown = name
            for handle in self._handles:
                handle.remove()
            with self._observations:
                self._handles = [
                    self._add(each, batch[row])
                    for each, batch in zip(spec.observation_specs, decisions.obs, strict=True)
                ]
            return
        for handle, each, batch in zip(
            self._handles, spec.observation_specs, decisions.obs, strict=True
        ):
            if len(each.shape) == 3:
                handle.image = picture_of(batch[row])
            elif np.prod(each.shape) <= _MOST_LISTED:
                handle.content = _numbers(each, batch[row])
            else:
                handle.data = _plotted(batch[row])

    def _add(self, spec: ObservationSpec, value: NDArray[Any]) -> Any:
        """Add what shows one observation, whose value is (*shape)."""
        if len(spec.shape) == 3:
            return self._gui.add_image(picture_of(value), label=spec.name, format="png")
        if np.prod(spec.shape) <= _MOST_LISTED:
            return self._gui.add_markdown(_numbers(spec, value))
        return self._gui.add_uplot(
            _plotted(value),
            ({"label": "index"}, {"label": spec.name, "stroke": "#2563c3", "width": 1}),
            title=spec.name,
            scales={"x": {"time": False}},
            aspect=2.0,
        )


def picture_of(observation: NDArray[Any]) -> NDArray[np.uint8]:
    """Return an image observation, (C, H, W), as a picture, (H', W', 3), large enough to see.

    Three channels are red, green and blue. Any other number is shown side by side in gray.
    """
    channels = observation
    if channels.dtype != np.uint8:
        channels = (np.clip(channels, 0.0, 1.0) * 255.0).astype(np.uint8)
    n, height, width = channels.shape
    if n == 3:
        picture = channels.transpose(1, 2, 0)
    else:
        columns = int(np.ceil(np.sqrt(n)))
        tiles = np.zeros((-(-n // columns) * columns, height + 1, width + 1), np.uint8)
        tiles[:, -1], tiles[:, :, -1] = 90, 90  # lines between them
        tiles[:n, :-1, :-1] = channels
        tiles = tiles.reshape(-1, columns, height + 1, width + 1).swapaxes(1, 2)
        gray = tiles.reshape(tiles.shape[0] * (height + 1), -1)
        picture = np.repeat(gray[..., None], 3, axis=2)
    zoom = max(1, _PICTURE_PIXELS // max(picture.shape[:2]))
    return np.ascontiguousarray(picture.repeat(zoom, axis=0).repeat(zoom, axis=1))


def _plotted(value: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    flat = value.ravel().astype(np.float64)
    return np.arange(len(flat), dtype=np.float64), flat


def _numbers(spec: ObservationSpec, value: NDArray[Any]) -> str:
    numbers = ", ".join(f"{number:.3g}" for number in value.ravel())
    return f"{spec.name}: {numbers}"


def _actions_in_words(moment: Moment, name: BehaviorName, spec: BehaviorSpec, row: int) -> str:
    action = moment.actions.get(name)
    if action is None or row >= len(action.discrete):
        return ""
    lines = []
    if spec.action_spec.continuous_size:
        numbers = ", ".join(f"{number:.2f}" for number in action.continuous[row])
        lines.append(f"Continuous actions: {numbers}")
    probabilities = moment.probabilities.get(name)
    for branch, size in enumerate(spec.action_spec.discrete_branches):
        chosen = int(action.discrete[row, branch])
        text = f"Branch {branch}: **{chosen}** of {size}"
        if probabilities is not None and size <= _MOST_LISTED:
            text += "; " + " ".join(
                f"`{choice}: {part:.0%}`" for choice, part in enumerate(probabilities[branch][row])
            )
        lines.append(text)
    return "  \n".join(lines)
