"""The review page's server: a handful of routes over an audit folder and its decisions.

A request names an image by its number and a layer by one of a few words, never a file, so no path can lead out of
the audit folder. Routes are plain functions; FastAPI runs them in threads, and `Decisions` orders the writes.
"""

from __future__ import annotations

import gzip
import io
import secrets
import socket
import webbrowser
from collections.abc import Awaitable, Callable
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import uvicorn
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Query, Request
from fastapi.responses import FileResponse, JSONResponse, Response
from numpy.typing import NDArray
from PIL import Image
from pydantic import BaseModel, ConfigDict, ValidationError

from jcas.review.audit import Audit, AuditedImage, read_audit
from jcas.review.decisions import Action, Decisions, StaleRevisionError, open_decisions, status
from jcas.review.guard import LOOPBACK, Guard
from jcas.review.source import SourceMissingError, check_source
from jcas.version import __version__

DEFAULT_PORT = 8765
THUMBNAIL = 112  # pixels, twice what the list shows, for sharp screens
MOST_JSON = 4096  # bytes; the longest honest decision has some hundred
_HERE = Path(__file__).parent
_STATIC = {path.name: path for path in _HERE.glob("*.*") if path.suffix in (".css", ".js")}
_MEDIA = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}

router = APIRouter()


class Decision(BaseModel):
    """What the page sends when someone decides."""

    model_config = ConfigDict(extra="forbid", strict=True)

    action: Action
    revision: int
    region: int | None = None


def limited(most: int | None) -> Callable[[Request], Awaitable[bytes]]:
    """A dependency that reads a body of at most ``most`` bytes (None: as many as the image has pixels)."""

    async def body(request: Request) -> bytes:
        limit = most
        if limit is None:
            image = _image(request, int(request.path_params["number"]))
            limit = image.height * image.width
        declared = request.headers.get("content-length", "0")
        if declared.isdigit() and int(declared) > limit:
            raise HTTPException(413, f"at most {limit} bytes")
        content = bytearray()
        async for chunk in request.stream():
            content += chunk
            if len(content) > limit:
                raise HTTPException(413, f"at most {limit} bytes")
        return bytes(content)

    return body


@router.get("/")
def page() -> Response:
    """The page itself."""
    return FileResponse(_HERE / "review.html", media_type="text/html; charset=utf-8")


@router.get("/static/{name}")
def static(name: str) -> Response:
    """Style and scripts of the page."""
    if name not in _STATIC:
        raise HTTPException(404, "no such file")
    return FileResponse(_STATIC[name], media_type=_MEDIA[_STATIC[name].suffix])


@router.get("/api/review")
def review(request: Request) -> Response:
    """Everything that the list shows, worst image first."""
    audit, decisions = _audit(request), _decisions(request)
    ranked = sorted(audit.images, key=lambda image: (image.quality, -image.expected_wrong, image.id))
    content = {
        "version": __version__,
        "folder": str(request.app.state.folder),
        "created": audit.created,
        "dataset": audit.dataset,
        "classes": audit.classes,
        "colours": audit.colours,
        "ignore": audit.ignore,
        "images": [_summary(image, decisions) for image in ranked],
    }
    return _packed(bytes(JSONResponse(content).body), "application/json")


@router.get("/api/images/{number}")
def image(request: Request, number: int) -> dict[str, Any]:
    """What is known and decided about one image."""
    image = _image(request, number)
    return {
        "id": image.id,
        "issues": [
            {
                "region": issue.region,
                "kind": issue.kind,
                "given": issue.given,
                "suggested": issue.suggested,
                "probability": issue.probability,
                "box": issue.box,
                "pixels": issue.pixels,
            }
            for issue in image.issues
        ],
        "per_class": image.per_class,
        "wrongness": _audit(request).file("wrongness", image).is_file(),
        "state": _state(image, _decisions(request)),
    }


@router.get("/api/images/{number}/picture")
def picture(request: Request, number: int) -> Response:
    """The image as the audit stored it."""
    path = _audit(request).file("images", _image(request, number))
    if not path.is_file():
        raise FileNotFoundError(f"{path}: missing from the audit folder")
    return FileResponse(path, media_type="image/png")


@router.get("/api/images/{number}/thumbnail")
def thumbnail(request: Request, number: int) -> Response:
    """A small view of the image with the suspected pixels in red."""
    content = _thumbnail(_audit(request), _image(request, number))
    return Response(content, media_type="image/jpeg", headers={"cache-control": "private, max-age=3600"})


@router.get("/api/images/{number}/{layer}")
def layer(request: Request, number: int, layer: str) -> Response:
    """One layer as raw numbers, row by row: bytes, or two bytes each (little end first) for regions."""
    audit, image = _audit(request), _image(request, number)
    if layer in ("given", "repaired"):
        pixels: NDArray[Any] | None = audit.labels(layer, image)
    elif layer == "regions":
        pixels = audit.region_map(image).astype("<u2")
    elif layer == "wrongness":
        pixels = audit.wrongness(image)
    elif layer == "painted":
        pixels = _decisions(request).painted(image)
    else:
        raise HTTPException(404, "no such layer")
    if pixels is None:
        return Response(status_code=204)
    return _packed(np.ascontiguousarray(pixels).tobytes(), "application/octet-stream")


@router.post("/api/images/{number}/decision")
def decide(request: Request, number: int, body: Annotated[bytes, Depends(limited(MOST_JSON))]) -> dict[str, Any]:
    """Write a decision down; the answer is sent when it is on the disk."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise HTTPException(415, "a decision is application/json")
    try:
        decision = Decision.model_validate_json(body)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "body"
        raise HTTPException(400, f"{where}: {first['msg']}") from None
    image = _image(request, number)
    _decisions(request).decide(image, decision.action, revision=decision.revision, region=decision.region)
    return _state(image, _decisions(request))


@router.post("/api/images/{number}/paint")
def paint(
    request: Request,
    number: int,
    body: Annotated[bytes, Depends(limited(None))],
    revision: Annotated[int, Query(ge=0)],
    top: Annotated[int, Query(ge=0)],
    left: Annotated[int, Query(ge=0)],
    height: Annotated[int, Query(ge=1)],
    width: Annotated[int, Query(ge=1)],
) -> dict[str, Any]:
    """Lay a painted rectangle of labels (one byte each, 254 = unpainted) over the image."""
    if request.headers.get("content-type") != "application/octet-stream":
        raise HTTPException(415, "a painted rectangle is application/octet-stream")
    if len(body) != height * width:
        raise HTTPException(400, f"{height} x {width} pixels, but {len(body)} bytes")
    image = _image(request, number)
    patch = np.frombuffer(body, np.uint8).reshape(height, width)
    _decisions(request).paint(image, patch, top=top, left=left, revision=revision)
    return _state(image, _decisions(request))


def make_app(audit: Audit, decisions: Decisions, *, folder: Path | None = None) -> FastAPI:
    """The web application without its guard."""
    app = FastAPI(title="jcas review", docs_url=None, redoc_url=None, openapi_url=None)
    app.state.audit, app.state.decisions, app.state.folder = audit, decisions, folder or audit.root
    app.include_router(router)

    def stale(request: Request, error: Exception) -> Response:
        return JSONResponse({"detail": str(error)}, status_code=409)

    def refused(request: Request, error: Exception) -> Response:
        return JSONResponse({"detail": str(error)}, status_code=400)

    def failed(request: Request, error: Exception) -> Response:
        reason = getattr(error, "strerror", None) or str(error)
        return JSONResponse({"detail": f"not saved: {reason}"}, status_code=507)

    def missing(request: Request, error: Exception) -> Response:
        return JSONResponse({"detail": str(error)}, status_code=404)

    app.add_exception_handler(StaleRevisionError, stale)
    app.add_exception_handler(ValueError, refused)
    app.add_exception_handler(FileNotFoundError, missing)
    app.add_exception_handler(OSError, failed)
    return app


def open_socket(host: str, port: int | None) -> socket.socket:
    """Listen at ``port``; without one at the usual port, or any free one if that is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for candidate in (DEFAULT_PORT, 0) if port is None else (port,):
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, candidate))
            listener.listen(128)
        except OSError as error:
            listener.close()
            if port is None and candidate:
                continue
            raise ValueError(f"cannot listen at {host}:{candidate} ({error.strerror}); choose another --port") from None
        return listener
    raise AssertionError("the last candidate returns or raises")


def serve(
    folder: Path,
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    browser: bool = True,
    announce: Callable[[str], None] = print,
    token: str | None = None,
    data: Path | None = None,
) -> None:
    """Show an audit folder as a web page until Ctrl-C.

    The masks of the dataset must still be those that were audited: an export would refuse them. Where the dataset is
    not at hand, decisions can still be made, and a warning is announced.

    Args:
        folder: of `jcas audit`.
        host: address to listen at; anything but the loopback opens the page to the network.
        port: see `open_socket`.
        browser: open the page in the user's browser.
        announce: gets the address to open, which holds the token.
        token: key to the page; a new random one by default.
        data: where the dataset lies now, if not where it was audited.
    """
    audit = read_audit(folder)
    unchecked: str | None = None
    try:
        check_source(audit, data)
    except SourceMissingError as error:
        if data is not None:
            raise
        unchecked = f"warning: {error}; whether its masks have changed since the audit is not checked"
    decisions = open_decisions(audit, write=True)
    try:
        listener = open_socket(host, port)
        bound = int(listener.getsockname()[1])
        token = token or secrets.token_urlsafe(24)
        app = Guard(make_app(audit, decisions, folder=folder), token=token, host=host, port=bound)
        name = "127.0.0.1" if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
        address = f"http://{name}:{bound}/?token={token}"
        announce(address)
        if unchecked is not None:
            announce(unchecked)
        if host not in LOOPBACK and host != "::1":
            announce(f"warning: {host} can be reached from the network, and the connection is not encrypted")
        if browser:
            webbrowser.open(address)
        config = uvicorn.Config(
            app, log_level="error", access_log=False, server_header=False, timeout_graceful_shutdown=2, ws="none"
        )
        uvicorn.Server(config).run(sockets=[listener])
    except KeyboardInterrupt:
        announce("stopped; all decisions are saved")
    finally:
        decisions.close()


def _audit(request: Request) -> Audit:
    return request.app.state.audit


def _decisions(request: Request) -> Decisions:
    return request.app.state.decisions


def _image(request: Request, number: int) -> AuditedImage:
    images = _audit(request).images
    if not 0 <= number < len(images):
        raise HTTPException(404, "no such image")
    return images[number]


def _summary(image: AuditedImage, decisions: Decisions) -> dict[str, Any]:
    return {
        "number": image.number,
        "id": image.id,
        "split": image.split,
        "group": image.group,
        "height": image.height,
        "width": image.width,
        "quality": image.quality,
        "expected_wrong": image.expected_wrong,
        "issues": len(image.issues),
        "kinds": sorted({issue.kind for issue in image.issues}),
        "classes": sorted({name for issue in image.issues for name in (issue.given, issue.suggested) if name}),
        "status": status(decisions.state(image), image.regions),
    }


def _state(image: AuditedImage, decisions: Decisions) -> dict[str, Any]:
    state = decisions.state(image)
    return {
        "revision": decisions.revision(image),
        "verdict": state.verdict,
        "regions": {str(region): accept for region, accept in state.regions.items()},
        "untrusted": state.untrusted,
        "painted": state.painted is not None,
        "status": status(state, image.regions),
        "can_undo": decisions.can_undo(image),
    }


def _packed(content: bytes, media_type: str) -> Response:
    """Masks shrink a hundredfold at the lowest level."""
    return Response(gzip.compress(content, 1, mtime=0), media_type=media_type, headers={"content-encoding": "gzip"})


@lru_cache(maxsize=2048)
def _small(path: Path, regions: Path, stamp: int) -> bytes:
    with Image.open(path) as picture:
        small = picture.convert("RGB")
    small.thumbnail((THUMBNAIL, THUMBNAIL))
    view = np.asarray(small).astype(np.float32)
    if regions.is_file():
        with Image.open(regions) as picture:
            suspected = Image.fromarray(((np.array(picture) > 0) * 255).astype(np.uint8))
        share = np.asarray(suspected.resize(small.size, Image.Resampling.BOX)).astype(np.float32)[..., None] / 255
        view += np.minimum(share * 1.5, 0.75) * (np.array([255, 64, 64], np.float32) - view)
    stream = io.BytesIO()
    Image.fromarray(view.round().astype(np.uint8)).save(stream, "JPEG", quality=80)
    return stream.getvalue()


def _thumbnail(audit: Audit, image: AuditedImage) -> bytes:
    path, regions = audit.file("images", image), audit.file("regions", image)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: missing from the audit folder")
    return _small(path, regions, path.stat().st_mtime_ns)
