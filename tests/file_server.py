"""An HTTP server on loopback that serves what a test gives it, also wrongly."""

import contextlib
import http.server
import threading
from collections.abc import Iterator


class FileServer:
    """Contents and redirects by path, and how often each path was asked for."""

    def __init__(self, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}"
        self.files: dict[str, bytes] = {}
        self.redirects: dict[str, str] = {}
        self.announced_bytes: dict[str, int | None] = {}
        self.asked: list[str] = []

    def serve(self, name: str, content: bytes) -> str:
        """Serve a file and return its address."""
        self.files[f"/{name}"] = content
        return f"{self.address}/{name}"


@contextlib.contextmanager
def file_server() -> Iterator[FileServer]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            server.asked.append(self.path)
            if self.path in server.redirects:
                self.send_response(302)
                self.send_header("Location", server.redirects[self.path])
                self.end_headers()
                return
            content = server.files.get(self.path)
            self.send_response(404 if content is None else 200)
            length = server.announced_bytes.get(self.path, len(content or b""))
            if length is not None:
                self.send_header("Content-Length", str(length))
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listener:
        server = FileServer(listener.server_port)
        thread = threading.Thread(target=listener.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            listener.shutdown()
            thread.join()
