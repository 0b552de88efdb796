"""`Page`: the live view in a browser on this machine.

stage = Stage()
with Page(stage, port=8080, title="3DBall") as page:
    print(page.url)
    ...                       # the thread that steps calls stage.offer(...)
"""

import io
import logging
import socket
import threading
import time
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from mlagents.viewing.agent_panel import AgentPanel
from mlagents.viewing.meshes import Layout, SceneMeshes
from mlagents.viewing.stage import Moment, Stage
from mlagents_envs.closing import Closing
from mlagents_envs.exception import UnityEnvironmentException
from mlagents_envs.logging_util import get_logger
from mlagents_envs.programs import needed_extra
from mlagents_envs.scene import Array, Scene

if TYPE_CHECKING:
    import viser

logger = get_logger(__name__)

HOST = "127.0.0.1"
"""Address of the page: no other machine reaches it."""
DEFAULT_PORT = 8080
FRAME_S = 1 / 30
"""Time between two pictures of the page, in wall time."""
CLIENTS_AT_FULL_RATE = 4
"""Number of browsers that get every picture; more of them get fewer."""
_PANEL_S = 0.2
"""Time between two updates of the panels."""
_WAIT_S = 0.5
_LARGEST_FOLLOW_M = 10.0
"""Largest extent of what is shown around a followed agent."""
_LARGEST_AREA_M = 60.0
"""Width of an area beyond which an agent is followed from the beginning."""
_VIEW_FROM = np.array([0.0, 0.7, 0.75])
"""Place of the camera at first, in extents of what is shown."""


class Panel(Protocol):
    """A part of the page's side bar."""

    def show(self, moment: Moment) -> None:
        """Show the newest moment. It is called a few times a second."""


class Page(Closing):
    """A page that shows the moments of a stage, until it is closed.

    A thread of its own draws. A browser that is slow gets fewer pictures; nothing waits for it.

    Args:
        stage: Stage to show.
        port: Port to serve on; 0 for any free one.
        title: Heading of the page's side bar.

    Attributes:
        gui: Side bar, for panels to add to.
        port: Port that the page is served on.

    Raises:
        UnityEnvironmentException: The port is in use.
        ModuleNotFoundError: A package of the extra `view` is missing.
    """

    def __init__(self, stage: Stage, *, port: int, title: str) -> None:
        with needed_extra("view", by="--view"):
            import viser
        self._stage = stage
        self._server = _serve(port, title)
        self.port: int = self._server.get_port()
        self.gui = self._server.gui
        self._meshes = SceneMeshes(self._server.scene)
        self._panels: list[Panel] = []
        self._layout: Layout | None = None
        self._picture: viser.GuiImageHandle | None = None
        self._has_client = threading.Event()
        self._is_closing = threading.Event()
        self._prepare()
        self._view = _ViewPanel(self.gui, stage)
        self._agent = AgentPanel(self.gui, stage)
        self.add(self._agent)
        self._server.on_client_connect(self._on_connect)
        self._thread = threading.Thread(target=self._draw_all, name="live view", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Address to open in a browser on this machine."""
        return f"http://{HOST}:{self.port}"

    @property
    def is_open_somewhere(self) -> bool:
        """Whether a browser shows the page."""
        return bool(self._server.get_clients())

    def add(self, panel: Panel) -> None:
        """Add a panel that is shown every moment."""
        self._panels.append(panel)

    def follow(self, agent: int) -> None:
        """Show an agent by its index, alone in its area."""
        self._agent.choose(agent)
        self._view.show_area_of(agent)

    def notify(self, title: str, text: str) -> None:
        """Show a message in all open pages."""
        for client in self._server.get_clients().values():
            client.add_notification(title, text, auto_close_seconds=10.0)

    def close(self) -> None:
        """Close the page. Calling it again does nothing."""
        if self._is_closing.is_set():
            return
        self._is_closing.set()
        self._has_client.set()
        self._stage.is_watched = False
        self._thread.join()
        with redirect_stdout(io.StringIO()):  # the server says there that it stops
            self._server.stop()

    def _prepare(self) -> None:
        scene = self._server.scene
        scene.set_up_direction("+y")
        scene.world_axes.visible = False
        scene.configure_environment_map(None)
        scene.configure_default_lights(False)
        scene.add_light_hemisphere("/sky", intensity=1.6)
        scene.add_light_directional("/sun", intensity=1.6, position=(0.4, 1.0, 0.6))
        self._server.gui.configure_theme(show_share_button=False)
        self._server.gui.main_panel.dock_right()

    def _on_connect(self, client: "viser.ClientHandle") -> None:
        self._has_client.set()
        if self._layout is not None:
            self._place_camera(client, self._layout)

    def _draw_all(self) -> None:
        panels_at_s = 0.0
        while not self._is_closing.is_set():
            n_clients = len(self._server.get_clients())
            self._stage.is_watched = n_clients > 0
            if not n_clients:
                self._has_client.clear()
                if not self._server.get_clients():
                    self._has_client.wait()
                continue
            begun_s = time.monotonic()
            moment = self._stage.take(_WAIT_S)
            if moment is None:
                continue
            try:
                with self._server.atomic():
                    self._draw(moment)
                if begun_s >= panels_at_s:
                    panels_at_s = begun_s + _PANEL_S
                    for panel in self._panels:
                        panel.show(moment)
            except Exception:  # the page must not end what it shows
                logger.exception("The live view failed; it is closed. Everything else continues.")
                self._stage.is_watched = False
                return
            frame_s = FRAME_S * max(1.0, n_clients / CLIENTS_AT_FULL_RATE)
            self._is_closing.wait(max(0.0, begun_s + frame_s - time.monotonic()))

    def _draw(self, moment: Moment) -> None:
        self._view.show(moment)
        scene = moment.scene
        if scene is None:
            self._draw_picture(moment)
            return
        only = self._view.area(scene)
        layout = Layout(scene, only)
        before, self._layout = self._layout, layout
        self._meshes.draw(scene.solids, layout, self._view.origin(scene, layout))
        if before is None or abs(before.extent_m - layout.extent_m) > 0.5 * layout.extent_m:
            for client in self._server.get_clients().values():
                self._place_camera(client, layout)

    def _draw_picture(self, moment: Moment) -> None:
        if moment.picture is None:
            return
        if self._picture is None:
            self._picture = self.gui.add_image(moment.picture, label="Picture", format="jpeg")
        else:
            self._picture.image = moment.picture

    def _place_camera(self, client: "viser.ClientHandle", layout: Layout) -> None:
        if self._view.follows:
            extent = self._view.follow_m
        else:
            extent = layout.extent_m
        client.camera.position = tuple(_VIEW_FROM * extent)
        client.camera.look_at = (0.0, 0.0, 0.0)


class _ViewPanel:
    """What part of the scene is shown."""

    def __init__(self, gui: "viser.GuiApi", stage: Stage) -> None:
        self._gui, self._stage = gui, stage
        self.follow_m = 10.0
        with gui.add_folder("View"):
            self._speed = gui.add_markdown("")
            self._area: Any = gui.add_slider("Area", min=0, max=1, step=1, initial_value=0)
            self._area.hint = "0 shows all areas"
            self._follow: Any = gui.add_checkbox("Follow the agent", False)
        self._area.visible = self._follow.visible = False
        self._has_begun = False
        self._alone: int | None = None
        self._since: tuple[float, float, int] | None = None  # wall time, simulated time, reports

    @property
    def follows(self) -> bool:
        return bool(self._follow.value)

    def show(self, moment: Moment) -> None:
        if moment.scene is not None and not self._has_begun:
            self._has_begun = True
            self._begin(moment.scene)
        self._show_speed(moment)

    def area(self, scene: Scene) -> int | None:
        """Return the area to show alone; None for all."""
        chosen = int(self._area.value)
        return chosen - 1 if 0 < chosen <= scene.n_areas and scene.n_areas > 1 else None

    def origin(self, scene: Scene, layout: Layout) -> Array:
        """Return the place that the camera looks at."""
        if self.follows:
            area, place = scene.agent_places()
            agent = min(self._stage.followed, len(area) - 1)
            if np.isfinite(place[agent]).all():
                origin: Array = layout.offset[area[agent]] + place[agent]
                return origin
        return np.zeros(3)

    def show_area_of(self, agent: int) -> None:
        """Show the area of an agent alone, once there is a scene."""
        self._alone = agent

    def _begin(self, scene: Scene) -> None:
        self._follow.visible = True
        extents = np.subtract(scene.high, scene.low)
        self.follow_m = min(_LARGEST_FOLLOW_M, 0.5 * float(max(extents)))
        if scene.n_areas > 1:
            self._area.max = scene.n_areas
            self._area.visible = True
            if self._alone is not None:
                self._area.value = int(scene.agent_places()[0][self._alone]) + 1
        if extents[0] > _LARGEST_AREA_M:  # too large to see an agent
            self._area.value = self._area.value or 1
            self._follow.value = True

    def _show_speed(self, moment: Moment) -> None:
        now = time.monotonic()
        time_s = moment.scene.time_s if moment.scene is not None else 0.0
        if self._since is None or time_s < self._since[1]:
            self._since = now, time_s, moment.n_reports
            return
        wall_s = now - self._since[0]
        if wall_s < 1.0:
            return
        reports = (moment.n_reports - self._since[2]) / wall_s
        text = f"{reports:.0f} reports a second"
        if moment.scene is not None:
            speed = (time_s - self._since[1]) / wall_s
            text = f"**{speed:.3g} x** real time, {text}"
        self._speed.content = text
        self._since = now, time_s, moment.n_reports


def _serve(port: int, title: str) -> "viser.ViserServer":
    """Return the page's server, at this port."""
    from viser import ViserServer

    try:
        with socket.socket() as probe:  # the server itself would take the next free port
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((HOST, port))
    except OSError as error:
        raise UnityEnvironmentException(
            f"--view: port {port} of {HOST} cannot be used: {error.strerror}. Choose another one, "
            f"such as --view {port + 1}, or --view 0 for any free port."
        ) from error
    logging.getLogger("websockets").setLevel(logging.WARNING)
    with redirect_stdout(io.StringIO()):  # it prints addresses that users are told otherwise
        return ViserServer(host=HOST, port=port, label=title, verbose=False)
