"""Panels of a play session: pace, policies, environment parameters, and keys for a person.

A panel calls back in a thread of the page. Its owner hands the call to the thread that steps.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mlagents.viewing.held import HeldControls
from mlagents_envs.scene import Control

if TYPE_CHECKING:
    import viser

_PACES = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, math.inf)
_HOLD_HZ = 20.0


class PacePanel:
    """Lets the user pause play and choose its speed.

    Args:
        gui: Side bar of the page.
        on_reset: Called when all episodes are to begin again.
        on_end: Called when play is to end.
    """

    def __init__(
        self, gui: "viser.GuiApi", *, on_reset: Callable[[], None], on_end: Callable[[], None]
    ) -> None:
        with gui.add_folder("Play"):
            self._pause = gui.add_checkbox("Pause", False)
            self._pace = gui.add_slider(
                "Speed", min=0, max=len(_PACES) - 1, step=1, initial_value=_PACES.index(1.0)
            )
            self._text = gui.add_markdown(_pace_in_words(1.0))
            reset = gui.add_button("Begin again")
            end = gui.add_button("End and save", color="red")
        self._pace.on_update(lambda _: self._say())
        reset.on_click(lambda _: on_reset())
        end.on_click(lambda _: on_end())

    @property
    def is_paused(self) -> bool:
        """Whether play waits."""
        return bool(self._pause.value)

    @property
    def speed(self) -> float:
        """Simulated seconds per second; infinite for as fast as possible."""
        return _PACES[int(self._pace.value)]

    def _say(self) -> None:
        self._text.content = _pace_in_words(self.speed)


class PolicyPanel:
    """Lets the user choose the policy of one behavior: a checkpoint or an uploaded file.

    Args:
        gui: Side bar of the page.
        behavior: Name of the behavior, in the heading.
        checkpoints: Names of the checkpoints of a run, the oldest first.
        on_choose: Called with the index of a checkpoint.
        on_upload: Called with name and content of a file.
    """

    def __init__(
        self,
        gui: "viser.GuiApi",
        behavior: str,
        checkpoints: Sequence[str],
        *,
        on_choose: Callable[[int], None],
        on_upload: Callable[[str, bytes], None],
    ) -> None:
        with gui.add_folder(f"Policy of {behavior}"):
            self._text = gui.add_markdown("")
            if len(checkpoints) > 1:
                slider = gui.add_slider(
                    "Checkpoint",
                    min=0,
                    max=len(checkpoints) - 1,
                    step=1,
                    initial_value=len(checkpoints) - 1,
                )
                slider.on_update(lambda event: on_choose(int(event.target.value)))
            upload = gui.add_upload_button("Upload .onnx", mime_type=".onnx")
        upload.on_upload(
            lambda event: on_upload(event.target.value.name, event.target.value.content)
        )

    def say(self, text: str) -> None:
        """Show which policy acts, or why another one does not."""
        self._text.content = text


class ParameterPanel:
    """Lets the user set environment parameters, each from 0 to twice its default.

    Args:
        gui: Side bar of the page.
        parameters: Values of the parameters.
        on_set: Called with name and value.
    """

    def __init__(
        self,
        gui: "viser.GuiApi",
        parameters: Mapping[str, float],
        *,
        on_set: Callable[[str, float], None],
    ) -> None:
        self._sliders: dict[str, Any] = {}
        if not parameters:
            return
        with gui.add_folder("Environment parameters", expand_by_default=False):
            gui.add_markdown("They count for episodes that begin from now on.")
            for name, value in parameters.items():
                low, high = min(0.0, 2.0 * value), max(0.0, 2.0 * value) or 1.0
                slider = gui.add_slider(
                    name, min=low, max=high, step=(high - low) / 200.0, initial_value=value
                )
                slider.on_update(_setter(name, on_set))
                self._sliders[name] = slider

    def put_back(self, name: str, value: float) -> None:
        """Show a value that was set elsewhere."""
        if self._sliders[name].value != value:
            self._sliders[name].value = value


class HumanPanel:
    """Keys and buttons by which a person acts.

    Args:
        gui: Side bar of the page.
        controls: Controls of the agent.
        held: Controls that are held, changed by this panel.
    """

    def __init__(
        self, gui: "viser.GuiApi", controls: Sequence[Control], held: HeldControls
    ) -> None:
        with gui.add_folder("Your keys"):
            gui.add_markdown(
                "A key acts until it, another key of its kind or X is pressed; hold a button to "
                "act as long."
            )
            latch = gui.add_checkbox("Keys stay pressed", True)
            latch.hint = "Otherwise a key acts while the keyboard repeats it"
            for control in controls:
                button = gui.add_button(f"{control.name} ({control.key})")
                button.on_hold(_holder(held, control), callback_hz=_HOLD_HZ)
                key: Any = "space" if control.key == "Space" else control.key
                command = gui.add_command(control.name, hotkey=key)
                command.on_trigger(_presser(held, control, latch))
            stop = gui.add_command("let go of all keys", hotkey="X")
            stop.on_trigger(lambda _: held.release())
            gui.add_button("Let go of all keys (X)").on_click(lambda _: held.release())


class ResultsPanel:
    """Shows the results of the episodes so far.

    Args:
        gui: Side bar of the page.
    """

    def __init__(self, gui: "viser.GuiApi") -> None:
        with gui.add_folder("Results"):
            self._text = gui.add_markdown("No episode has ended yet.")

    def say(self, text: str) -> None:
        """Show results as text."""
        if self._text.content != text:
            self._text.content = text


def _pace_in_words(speed: float) -> str:
    return "as fast as possible" if math.isinf(speed) else f"{speed:g} x real time"


def _setter(name: str, on_set: Callable[[str, float], None]) -> Callable[[Any], None]:
    return lambda event: on_set(name, float(event.target.value))


def _holder(held: HeldControls, control: Control) -> Callable[[Any], None]:
    return lambda _: held.hold(control, until_s=time.monotonic() + 3.0 / _HOLD_HZ)


def _presser(held: HeldControls, control: Control, latch: Any) -> Callable[[Any], None]:
    def press(_: Any) -> None:
        if latch.value:
            held.toggle(control)
        else:
            held.hold(control, until_s=time.monotonic() + 0.2)

    return press
