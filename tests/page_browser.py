"""The part of a browser that the page's server sees: a connection that reads what it is sent."""

import msgspec
import viser
from websockets.sync.client import ClientConnection, connect

CAMERA = {
    "type": "ViewerCameraMessage",
    "wxyz": (1.0, 0.0, 0.0, 0.0),
    "position": (0.0, 0.0, 1.0),
    "fov": 1.0,
    "near": 0.1,
    "far": 100.0,
    "image_height": 600,
    "image_width": 800,
    "look_at": (0.0, 0.0, 0.0),
    "up_direction": (0.0, 1.0, 0.0),
}


def open_page(url: str) -> ClientConnection:
    """Return a connection that has told its camera, as a browser does when it shows the page."""
    address = url.replace("http://", "ws://")
    connection = connect(
        address,
        subprotocols=[f"viser-v{viser.__version__}"],
        max_size=None,
        compression=None,
        close_timeout=0.2,  # one that reads nothing does not see the server's answer
    )
    connection.send(msgspec.msgpack.encode(CAMERA))
    return connection
