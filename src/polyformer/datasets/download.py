"""Download files: each is written aside, verified and renamed, so that no file is ever incomplete.

pooch would replace the transfer and the hash, not the checks of free disk, of the length and of zip members nor our
reporter, and needs requests besides.
"""

from __future__ import annotations

import hashlib
import http.client
import stat
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from polyformer.errors import DownloadFailed, FileCorrupt
from polyformer.files import (
    GET_AGAIN,
    open_regular,
    read_small,
    reading,
    reporting_io_errors,
    require_disk,
    write_whole,
)
from polyformer.reporter import SILENT, Reporter

__all__ = ["check_recorded", "download", "extract"]

CHUNK = 1 << 20
TIMEOUT = 60.0
CHEAP_TO_HASH = 256 << 20
"""Files up to this size in bytes are hashed whenever they are loaded, which takes about 0.2 s at most."""


def download(url: str, target: Path, sha256: str | None = None, reporter: Reporter = SILENT) -> None:
    """Fetch ``url`` into ``target`` and record its hash beside it.

    Raises:
        DownloadFailed: no connection, an error of the server, a truncated transfer, or another hash than ``sha256``.
        OutOfResources: no space, or no permission to write.
    """
    digest = hashlib.sha256()
    with reporting_io_errors(f"the download of {url}", target), _connect(url) as response:
        total = _expected_size(response)
        _check_space(total, target, url)
        with write_whole(target) as file:
            done = 0
            for chunk in _chunks(response, url):
                file.write(chunk)
                digest.update(chunk)
                done += len(chunk)
                reporter.stage(target.name, done, total)
            if total is not None and done != total:
                raise DownloadFailed(f"The download of {url} ended after {done:,} of {total:,} bytes. Try again.")
            if sha256 is not None and digest.hexdigest() != sha256:
                raise DownloadFailed(
                    f"What {url} gave is not the published file: its SHA-256 is {digest.hexdigest()} "
                    f"instead of {sha256}. Try again, or get the file elsewhere and put it in '{target}'."
                )
        _record(target, digest.hexdigest())


def check_recorded(path: Path) -> None:
    """Refuse a downloaded file that has changed; files that are too large to hash every time are not checked."""
    record = _record_path(path)
    if not record.is_file() or path.stat().st_size > CHEAP_TO_HASH:
        return
    with reading(record, GET_AGAIN), open_regular(path) as file:
        actual = hashlib.file_digest(file, "sha256").hexdigest()
        recorded = read_small(record, 1 << 10).decode("utf-8").strip()
    if actual != recorded:
        raise FileCorrupt(
            f"'{path}' has changed since it was downloaded. Delete it and '{record.name}' to get it again."
        )


def extract(archive: Path, folder: Path, paths: Collection[str], reporter: Reporter = SILENT) -> None:
    """Unpack the files at ``paths``, which are below the archive's one top folder, into ``folder``.

    Raises:
        FileCorrupt: not a zip file, damaged, without one of these files, or with a member whose path leaves the folder.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            members = {_inner_path(member, archive): member for member in opened.infolist() if not member.is_dir()}
            for path in paths:
                if path not in members:
                    raise FileCorrupt(f"The archive '{archive}' has no file '{path}'. Delete it to download it again.")
                _check_space(members[path].file_size, folder, str(archive))
                _unpack(opened, members[path], folder / path, reporter)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise FileCorrupt(
            f"'{archive}' cannot be read as a zip archive ({error}). Delete it to download it again."
        ) from None


def _unpack(opened: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path, reporter: Reporter) -> None:
    digest = hashlib.sha256()
    with (
        reporting_io_errors(f"'{member.filename}'", target),
        opened.open(member) as source,
        write_whole(target) as file,
    ):
        done = 0
        while chunk := source.read(CHUNK):
            file.write(chunk)
            digest.update(chunk)
            done += len(chunk)
            reporter.stage(target.name, done, member.file_size)
    _record(target, digest.hexdigest())


def _inner_path(member: zipfile.ZipInfo, archive: Path) -> str:
    """The member's path without the top folder; refuses an archive with a path that leaves the folder."""
    path = PurePosixPath(member.filename)
    is_link = stat.S_ISLNK(member.external_attr >> 16)
    if path.is_absolute() or ".." in path.parts or "\\" in member.filename or ":" in path.parts[0] or is_link:
        raise FileCorrupt(
            f"The archive '{archive}' has the member '{member.filename}', which would be written outside "
            f"its folder, so nothing was unpacked. Delete it and get it from the public address."
        )
    return "/".join(path.parts[1:]) if len(path.parts) > 1 else path.parts[0]


def _connect(url: str) -> http.client.HTTPResponse:
    request = urllib.request.Request(url, headers={"User-Agent": "polyformer"})
    try:
        response: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        raise DownloadFailed(f"{url} could not be downloaded: the server says {error.code} {error.reason}.") from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise DownloadFailed(f"{url} could not be downloaded ({reason}). Check the connection and try again.") from None
    return response


def _chunks(response: IO[bytes] | http.client.HTTPResponse, url: str) -> Iterator[bytes]:
    while True:
        try:
            chunk = response.read(CHUNK)
        except (OSError, http.client.HTTPException) as error:
            raise DownloadFailed(f"The download of {url} broke off ({error}). Try again.") from None
        if not chunk:
            return
        yield chunk


def _expected_size(response: http.client.HTTPResponse) -> int | None:
    length = response.headers.get("Content-Length")
    return int(length) if length is not None and length.isdecimal() else None


def _check_space(needed: int | None, target: Path, what: str) -> None:
    """Refuse a download that does not fit on the disk, before it starts."""
    if needed is not None:
        require_disk(f"{what} needs", needed, target, "Free some, or set XDG_CACHE_HOME to a larger disk.")


def _record(path: Path, digest: str) -> None:
    with write_whole(_record_path(path)) as file:
        file.write(f"{digest}\n".encode())


def _record_path(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")
