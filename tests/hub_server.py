"""A hub on loopback: the routes by which its client makes, fills, lists and reads a repository."""

import base64
import contextlib
import hashlib
import http.server
import json
import threading
from collections.abc import Iterator

LARGE = (".pt", ".onnx")  # what the hub keeps apart from the history, as large files


class HubServer:
    """Repositories by id, each its files by path; asks everyone who writes for `TOKEN`."""

    TOKEN = "hf_of_the_stand_in"
    COMMIT = "0123456789abcdef0123456789abcdef01234567"

    def __init__(self, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}"
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.large: dict[str, bytes] = {}
        self.messages: list[str] = []


@contextlib.contextmanager
def hub_server() -> Iterator[HubServer]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self, content: bytes, status: int = 200, **headers: str) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def answer_json(self, value: object, status: int = 200, **headers: str) -> None:
            headers["Content_Type"] = "application/json"
            self.answer(json.dumps(value).encode(), status, **headers)

        def refuse(self, status: int, code: str = "") -> None:
            self.answer_json({"error": code}, status, X_Error_Code=code)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            path = self.path.partition("?")[0]
            if self.headers["Authorization"] != f"Bearer {hub.TOKEN}":
                self.refuse(401)
            elif path == "/api/repos/create":
                asked = json.loads(body)
                name = "/".join(filter(None, (asked.get("organization"), asked["name"])))
                hub.repositories.setdefault(name, {})
                self.answer_json({"url": f"{hub.address}/{name}"})
            elif path == "/api/validate-yaml":
                self.answer_json({"errors": [], "warnings": []})
            elif path.endswith("/preupload/main"):
                names = [file["path"] for file in json.loads(body)["files"]]
                modes = {name: "lfs" if name.endswith(LARGE) else "regular" for name in names}
                files = [
                    {"path": name, "uploadMode": mode, "shouldIgnore": False}
                    for name, mode in modes.items()
                ]
                self.answer_json({"files": files})
            elif path.endswith(".git/info/lfs/objects/batch"):
                objects = [
                    asked | {"actions": {"upload": {"href": f"{hub.address}/large/{asked['oid']}"}}}
                    for asked in json.loads(body)["objects"]
                ]
                self.answer_json({"transfer": "basic", "objects": objects})
            elif path.endswith("/commit/main"):
                self.commit(path.removeprefix("/api/models/").removesuffix("/commit/main"), body)
            else:
                self.refuse(404)

        def do_PUT(self) -> None:
            if self.headers["Transfer-Encoding"] == "chunked":
                content = b""
                while size := int(self.rfile.readline(), 16):
                    content += self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()
            else:
                content = self.rfile.read(int(self.headers["Content-Length"]))
            hub.large[hashlib.sha256(content).hexdigest()] = content
            self.answer(b"")

        def commit(self, repository: str, body: bytes) -> None:
            for entry in map(json.loads, body.splitlines()):
                value = entry["value"]
                if entry["key"] == "header":
                    hub.messages.append(value["summary"])
                elif entry["key"] == "file":
                    content = base64.b64decode(value["content"])
                    hub.repositories[repository][value["path"]] = content
                else:
                    assert entry["key"] == "lfsFile"
                    hub.repositories[repository][value["path"]] = hub.large[value["oid"]]
            url = f"{hub.address}/{repository}/commit/{hub.COMMIT}"
            self.answer_json({"commitUrl": url, "commitOid": hub.COMMIT})

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            parts = path.removeprefix("/api/models").strip("/").split("/")
            name, rest = "/".join(parts[:2]), parts[2:]
            files = hub.repositories.get(name)
            if files is None:
                self.refuse(404, "RepoNotFound")
            elif rest[:1] in ([], ["revision"]):
                siblings = [{"rfilename": file} for file in files]
                found = {"id": name, "sha": hub.COMMIT, "siblings": siblings, "private": False}
                self.answer_json(found | {"tags": []})
            elif rest[0] == "tree":
                self.answer_json([entry_of(file, content) for file, content in files.items()])
            elif rest[0] == "resolve" and "/".join(rest[2:]) in files:
                content = files["/".join(rest[2:])]
                etag = f'"{hashlib.sha256(content).hexdigest()}"'
                self.answer(content, ETag=etag, X_Repo_Commit=hub.COMMIT)
            else:
                self.refuse(404, "EntryNotFound")

        do_HEAD = do_GET

        def log_message(self, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listener:
        listener.daemon_threads = True  # a client keeps its connections open
        hub = HubServer(listener.server_port)
        thread = threading.Thread(target=listener.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield hub
        finally:
            listener.shutdown()
            thread.join()


def entry_of(path: str, content: bytes) -> dict[str, object]:
    """Describe a file as the listing of a repository does."""
    sha256 = hashlib.sha256(content).hexdigest()
    entry = {"type": "file", "path": path, "size": len(content), "oid": sha256[:40]}
    if path.endswith(LARGE):
        entry["lfs"] = {"oid": sha256, "size": len(content), "pointerSize": 130}
    return entry
