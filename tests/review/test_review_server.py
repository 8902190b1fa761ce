"""The review server as other programs meet it: a real process, real requests, hostile ones included."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from audit_folder import make_audit
from PIL import Image
from review_server import Server, run_command, serving

from jcas.review.audit import read_audit
from jcas.review.decisions import open_decisions
from jcas.review.guard import Guard
from jcas.review.server import serve

HOSTILE = (
    "plain",
    "two words",
    'it\'s "quoted"',
    "<img src=x onerror=alert(1)>",
    "Bäume 图像 🫀",
    "100%2e%2e #1 &?",
)


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_audit(tmp_path_factory.mktemp("server"), HOSTILE)


@pytest.fixture(scope="module")
def server(audit: Path) -> Iterator[Server]:
    with serving(audit) as running:
        yield running


def stored(audit: Path, layer: str, name: str) -> np.ndarray:
    return np.array(Image.open(audit / layer / f"{name}.png"))


# --- what it serves -------------------------------------------------------------------------------------------------


def test_list_is_ranked_worst_first_with_names_untouched(server: Server):
    listed = server.ask("/api/review").json()["images"]
    assert sorted(image["id"] for image in listed) == sorted(HOSTILE)
    qualities = [image["quality"] for image in listed]
    assert qualities == sorted(qualities) and len(set(qualities)) > 1
    assert {"missing", "superfluous", "wrong_class"} <= set(listed[0]["kinds"])


def test_layers_are_served_number_by_number(server: Server, audit: Path):
    for image in server.ask("/api/review").json()["images"]:
        size = image["height"], image["width"]
        for layer, kind in (("given", "u1"), ("repaired", "u1"), ("wrongness", "u1"), ("regions", "<u2")):
            answer = server.ask(f"/api/images/{image['number']}/{layer}")
            assert np.array_equal(np.frombuffer(answer.body, kind).reshape(size), stored(audit, layer, image["id"]))
        picture = server.ask(f"/api/images/{image['number']}/picture")
        assert picture.body == (audit / "images" / f"{image['id']}.png").read_bytes()
        assert server.ask(f"/api/images/{image['number']}/thumbnail").body.startswith(b"\xff\xd8")
        assert server.ask(f"/api/images/{image['number']}/painted").status == 204


def test_page_and_scripts_come_from_this_server_alone(server: Server):
    page = server.ask("/")
    assert page.status == 200 and b"://" not in page.body
    for name in ("review.css", "review.js", "api.js", "list.js", "outline.js", "panel.js", "stage.js"):
        answer = server.ask(f"/static/{name}")
        assert answer.status == 200 and b"http" not in answer.body
        assert answer.headers["content-type"].split(";")[0] in ("text/css", "text/javascript")


# --- who may ask ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/static/review.js", "/api/review", "/api/images/0/given", "/nowhere"])
def test_nothing_is_served_without_the_token(server: Server, path: str):
    for headers in ({}, {"x_review_token": "guess"}, {"cookie": f"jcas-review-{server.port}=guess"}):
        answer = server.ask(path, token=False, **headers)
        assert answer.status == 403 and "set-cookie" not in answer.headers


def test_token_in_the_address_becomes_a_strict_cookie(server: Server):
    answer = server.ask(f"/?token={server.token}", token=False)
    cookie = answer.headers["set-cookie"]
    assert answer.status == 200 and "HttpOnly" in cookie and "SameSite=Strict" in cookie
    assert server.ask("/api/review", token=False, cookie=cookie.split(";")[0]).status == 200
    assert server.ask(f"/api/review?token={server.token}", token=False).status == 403  # only the page itself
    assert server.ask("/?token=%C3%A4%00", token=False).status == 403


def test_token_is_long_and_new_each_time(server: Server, tmp_path: Path):
    assert len(server.token) >= 32
    with serving(make_audit(tmp_path, ["a"])) as other:
        assert other.token != server.token


@pytest.mark.parametrize(
    "host", ["evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "127.0.0.1.evil.example:{port}", "", "10.0.0.1:{port}"]
)
def test_rebound_names_are_refused(server: Server, host: str):
    assert server.ask("/api/review", host=host.format(port=server.port)).status == 421


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_own_names_are_accepted(server: Server, host: str):
    assert server.ask("/api/review", host=f"{host}:{server.port}").status == 200


def test_wish_for_all_addresses_still_refuses_names():
    guard = Guard(app=None, token="t", host="0.0.0.0", port=80)  # type: ignore[arg-type]
    answers = {
        host: guard._is_own_address(host) for host in ("192.168.1.4", "[fe80::1]", "evil.example", "192.168.1.4:81")
    }
    assert list(answers.values()) == [True, True, False, False]


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://127.0.0.1:{port}"])
def test_other_origins_cannot_write(server: Server, origin: str):
    body = {"action": "accept", "revision": 0}
    origin = origin.format(port=server.port)
    answer = server.ask("/api/images/0/decision", method="POST", body=body, origin=origin)
    assert answer.status == 403 and revision(server, 0) == 0


def test_write_by_cookie_needs_an_origin_and_read_by_another_site_is_refused(server: Server):
    cookie = f"jcas-review-{server.port}={server.token}"
    body = {"action": "undo", "revision": 0}
    path = "/api/images/0/decision"
    assert server.ask(path, method="POST", body=body, token=False, cookie=cookie).status == 403
    answer = server.ask(path, method="POST", body=body, token=False, cookie=cookie, origin=server.origin)
    assert answer.status == 400 and "nothing to undo" in answer.json()["detail"]
    for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)):
        assert server.ask("/api/review", token=False, cookie=cookie, sec_fetch_site=site).status == status


def test_every_answer_carries_the_security_headers(server: Server):
    for answer in (server.ask("/"), server.ask("/api/review"), server.ask("/nope"), server.ask("/", token=False)):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in answer.headers and "server" not in answer.headers
    assert b"style=" not in server.ask("/").body and b"<script>" not in server.ask("/").body


# --- paths ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/static/../audit.json",
        "/static/..%2fserver.py",
        "/static/%2e%2e%2f%2e%2e%2fengine.py",
        "/static/server.py",
        "/static//etc/passwd",
        "/static/%2fetc%2fpasswd",
        "/static/review.js%00.html",
        "/static/..\\server.py",
        "/static/..%5cserver.py",
        "/api/images/../audit.json",
        "/api/images/0/../../review",
        "/api/images/0/%2e%2e%2faudit.json",
        "/api/images/0/images",
        "/api/images/0/given%00",
        "/api/images/-1/given",
        "/api/images/999/given",
        "/api/images/%2fetc%2fpasswd/given",
        "/audit.json",
        "//etc/passwd",
        "/docs",
        "/openapi.json",
    ],
)
def test_no_path_leads_to_another_file(server: Server, path: str):
    answer = server.ask(path)
    assert answer.status in (404, 422)
    assert b"root:" not in answer.body and b"import" not in answer.body and b"confidence" not in answer.body


def test_links_out_of_the_audit_folder_are_refused(tmp_path: Path):
    audit = make_audit(tmp_path, ["a", "b"])
    secret = tmp_path / "secret.png"
    (audit / "given" / "a.png").rename(secret)
    (audit / "given" / "a.png").symlink_to(secret)
    (audit / "images" / "a.png").unlink()
    (audit / "images" / "a.png").symlink_to(secret)
    (audit / "repaired" / "b.png").unlink()
    with serving(audit) as server:
        for path in ("0/given", "0/picture", "0/thumbnail"):
            answer = server.ask(f"/api/images/{path}")
            assert answer.status == 400 and "leads out of the audit folder" in answer.json()["detail"]
        missing = server.ask("/api/images/1/repaired")
        assert missing.status == 404 and "missing from the audit folder" in missing.json()["detail"]
        assert server.ask("/api/images/1/given").status == 200


# --- writing --------------------------------------------------------------------------------------------------------


def revision(server: Server, number: int) -> int:
    return server.ask(f"/api/images/{number}").json()["state"]["revision"]


def paint(server: Server, number: int, patch: np.ndarray, *, at: tuple[int, int], revision: int, **headers: str):
    query = f"revision={revision}&top={at[0]}&left={at[1]}&height={patch.shape[0]}&width={patch.shape[1]}"
    kind = {"content_type": "application/octet-stream", **headers}
    return server.ask(f"/api/images/{number}/paint?{query}", method="POST", body=patch.tobytes(), **kind)


def test_decision_and_paint_are_kept_and_undone(server: Server, audit: Path):
    state = server.decide(1, "accept_region", revision=0, region=1).json()
    assert state["regions"] == {"1": True} and state["status"] == "partly" and state["can_undo"]
    state = paint(server, 1, np.full((3, 4), 2, np.uint8), at=(5, 6), revision=1).json()
    assert state["painted"] and state["revision"] == 2
    layer = np.frombuffer(server.ask("/api/images/1/painted").body, np.uint8).reshape(40, 60)
    assert (layer[5:8, 6:10] == 2).all() and (layer == 2).sum() == 12 and (layer == 254).sum() == layer.size - 12
    assert not server.decide(1, "undo", revision=2).json()["painted"]
    assert server.ask("/api/images/1/painted").status == 204
    assert server.decide(1, "undo", revision=3).json()["status"] == "open"


def test_second_tab_gets_409_and_nothing_is_overwritten(server: Server):
    assert server.decide(2, "accept", revision=0).status == 200
    answer = server.decide(2, "reject", revision=0)
    assert answer.status == 409 and "changed meanwhile" in answer.json()["detail"]
    assert paint(server, 2, np.zeros((1, 1), np.uint8), at=(0, 0), revision=0).status == 409
    assert server.ask("/api/images/2").json()["state"]["verdict"] is True


def test_of_many_writers_at_once_exactly_one_wins(server: Server):
    answers: list[int] = []
    threads = [
        threading.Thread(target=lambda a=a: answers.append(server.decide(3, a, revision=0).status))
        for a in ("accept", "reject") * 4
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [200] + [409] * 7


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b'{"action": "accept"}',
        b'{"action": "delete", "revision": 0}',
        b'{"action": "accept", "revision": "0"}',
        b'{"action": "accept", "revision": 0, "more": 1}',
        b'{"action": "accept", "revision": 0, "region": 1}',
        b'{"action": "accept_region", "revision": 0}',
        b'{"action": "accept_region", "revision": 0, "region": 999}',
    ],
)
def test_wrong_decision_is_refused(server: Server, body: bytes):
    answer = server.ask("/api/images/4/decision", method="POST", body=body, content_type="application/json")
    assert answer.status == 400 and isinstance(answer.json()["detail"], str)
    assert revision(server, 4) == 0


def test_bodies_have_limits(server: Server):
    path = "/api/images/4/decision"
    kind = {"content_type": "application/json"}
    assert server.ask(path, method="POST", body=b" " * 5000, **kind).status == 413
    chunked = b"1388\r\n" + b" " * 5000 + b"\r\n0\r\n\r\n"
    answer = server.ask(path, method="POST", body=chunked, transfer_encoding="chunked", content_length=None, **kind)
    assert answer.status == 413
    assert server.ask(path, method="POST", body=b"{}", content_type="text/plain").status == 415
    assert paint(server, 4, np.zeros((41, 60), np.uint8), at=(0, 0), revision=0).status == 413
    assert paint(server, 4, np.zeros((2, 2), np.uint8), at=(0, 0), revision=0, content_type="text/plain").status == 415
    assert paint(server, 4, np.zeros((2, 2), np.uint8), at=(39, 0), revision=0).status == 400
    assert paint(server, 4, np.full((2, 2), 77, np.uint8), at=(0, 0), revision=0).status == 400
    query = "revision=0&top=0&left=0&height=2&width=3"
    octets = {"content_type": "application/octet-stream"}
    assert server.ask(f"/api/images/4/paint?{query}", method="POST", body=b"1234", **octets).status == 400
    assert server.ask("/api/images/4/paint?revision=x", method="POST", body=b"", **octets).status == 422
    assert revision(server, 4) == 0


# --- living and dying -----------------------------------------------------------------------------------------------


def test_every_acknowledged_decision_survives_kill_9(tmp_path: Path):
    audit = make_audit(tmp_path, [f"i{n}" for n in range(8)])
    acknowledged: list[tuple[int, str]] = []
    with serving(audit) as server:

        def work() -> None:
            for turn in range(200):
                number, action = turn % 8, ("accept", "reject", "untrusted")[turn % 3]
                try:
                    if server.decide(number, action, revision=turn // 8).status == 200:
                        acknowledged.append((number, action))
                except (OSError, ValueError):
                    return

        worker = threading.Thread(target=work)
        worker.start()
        while len(acknowledged) < 25:
            worker.join(0.01)
        os.kill(server.process.pid, signal.SIGKILL)
        worker.join()
    lines = [json.loads(line) for line in (audit / "decisions.jsonl").read_text().splitlines()[1:]]
    written = [(int(line["image"][1:]), line["action"]) for line in lines]
    assert written[: len(acknowledged)] == acknowledged and len(written) <= len(acknowledged) + 1
    with serving(audit) as server:  # and the next server takes over
        states = [server.ask(f"/api/images/{number}").json()["state"] for number in range(8)]
        assert sum(state["revision"] for state in states) == len(written)


def test_ctrl_c_ends_quietly(tmp_path: Path):
    with serving(make_audit(tmp_path, ["a"])) as server:
        assert server.ask("/api/review").status == 200
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(10) == 0
        assert "all decisions are saved" in server.process.stdout.read()


def test_only_the_loopback_is_bound(server: Server):
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    listening = [row[1] for row in rows if row[3] == "0A" and int(row[1].split(":")[1], 16) == server.port]
    assert listening == [f"0100007F:{server.port:04X}"]


def test_bad_calls_are_one_line_and_exit_2(server: Server, audit: Path, tmp_path: Path):
    other = make_audit(tmp_path, ["a"])
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        calls = {
            ("review", str(tmp_path / "nowhere")): "no such folder",
            ("review", str(tmp_path / "data")): "not a finished audit folder",
            ("review", str(other), "--no-browser", "--port", str(taken.getsockname()[1])): "choose another --port",
            ("review", str(audit), "--no-browser"): "another `jcas review` of this folder is running",
        }
        for call, reason in calls.items():
            code, written = run_command(*call)
            assert code == 2 and reason in written and written.count("\n") == 1


def test_masks_changed_since_the_audit_stop_the_page_as_they_stop_the_export(tmp_path: Path):
    audit = make_audit(tmp_path, ["a", "b"])
    mask = tmp_path / "data" / "masks" / "b.png"
    changed = np.array(Image.open(mask))
    changed[30, 30] ^= 1
    Image.fromarray(changed).save(mask)
    code, written = run_command("review", str(audit), "--no-browser", "--port", "0")
    assert code == 2 and "'b' has changed since the audit; audit again" in written and written.count("\n") == 1
    assert run_command("review", str(audit), "--export", str(tmp_path / "out")) == (code, written)
    assert not (audit / "decisions.jsonl").exists()


def test_without_the_dataset_the_page_opens_with_a_warning(tmp_path: Path):
    audit = make_audit(tmp_path, ["a"])
    (tmp_path / "data").rename(tmp_path / "elsewhere")
    with serving(audit) as server:
        assert "not there" in server.process.stdout.readline()
        assert server.decide(0, "accept", revision=0).status == 200
    with pytest.raises(FileNotFoundError, match="the audited dataset is not there"):
        serve(audit, browser=False, data=tmp_path / "gone")


def test_missing_extra_is_named(tmp_path: Path):
    blocked = (
        "import sys; sys.modules['fastapi'] = None; sys.argv = ['jcas', 'review', '.']; import jcas.cli as c; c.main()"
    )
    done = subprocess.run([sys.executable, "-c", blocked], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "pip install -e '.[review]'" in done.stderr


def test_decisions_made_by_requests_are_those_on_disk(server: Server, audit: Path):
    decisions = open_decisions(read_audit(audit), write=False)
    for image in read_audit(audit).images:
        assert decisions.revision(image) == revision(server, image.number)
