"""A model on a hub, as files on this machine: `hf:owner/name[/file][@revision]`.

The network is used here and nowhere else in vitrail, and only because an argument started with `hf:`. What arrives is
compared with the checksums the hub lists; a folder in the cache is complete and verified, or it is not there.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from vitrail.checkpoint.source import shown
from vitrail.errors import CheckpointError, EnvironmentProblem, UsageError

MARK = "hf:"
CONFIGS = ("config.json", "preprocessor_config.json")
INDEX, SHARD = "model.safetensors.index.json", re.compile(r"model-\d+-of-\d+\.safetensors")
# Weights in the order in which they are preferred; pickles only when the user asked for one.
SAFE = ("model.safetensors", INDEX, "*.safetensors", "*.npz")
PICKLED = ("pytorch_model.bin", "*.bin", "*.pth", "*.pt")
PLAIN_NAME = re.compile(r"\w[\w.-]*(?:/\w[\w.-]*)*")
COMMIT = re.compile(r"[0-9a-f]{40}")
SECONDS = 10  # until a hub that does not answer counts as out of reach

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Remote:
    """What the argument named."""

    repo: str
    file: str = ""
    revision: str = "main"

    def __str__(self) -> str:
        return f"{MARK}{self.repo}{'/' * bool(self.file)}{self.file}@{self.revision}"


@dataclass(frozen=True)
class File:
    """A file as the hub lists it: its name, size, and the checksum of its content."""

    name: str
    size: int
    sha256: str = ""  # of a large file
    blob: str = ""  # git's own name for a small one


def is_remote(name: str) -> bool:
    """Whether an argument names a model on a hub."""
    return name.startswith(MARK)


def parse(name: str) -> Remote:
    """The parts of `hf:owner/name[/file][@revision]`."""
    part = r"[A-Za-z0-9][\w.-]*"
    match = re.fullmatch(rf"{MARK}({part}/{part})(?:/({PLAIN_NAME.pattern}))?(?:@([\w./-]+))?", name)
    if match is None or ".." in name:
        raise UsageError(
            f"'{shown(name)}' does not name a model on a hub.",
            "A remote model reads hf:owner/name, hf:owner/name@revision or hf:owner/name/file.npz.",
            "Example: hf:google/vit-base-patch16-224",
        )
    return Remote(match[1], match[2] or "", match[3] or "main")


def cache() -> Path:
    """Where downloads are kept: VITRAIL_CACHE, or a folder of ours in the user's cache."""
    own = os.environ.get("VITRAIL_CACHE")
    return Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "vitrail")


def fetch(name: str, *, from_pickle: bool = False) -> Path:
    """The folder or the weight file of a remote model, downloaded where the cache does not have it yet."""
    remote = parse(name)
    hub = _library()
    kind = "-pickle" if from_pickle else ""
    kind += "-" + remote.file.replace("/", "--") if remote.file else ""
    folder = cache() / "hub" / remote.repo.replace("/", "--")
    known = folder / "refs" / (remote.revision.replace("/", "--") + kind)
    with _locked(folder):
        if COMMIT.fullmatch(remote.revision) and (folder / (remote.revision + kind)).is_dir():
            return _entry(folder / (remote.revision + kind), remote)
        try:
            commit, files = _listing(hub, remote)
        except EnvironmentProblem:
            before = known.read_text() if known.is_file() else ""
            if not COMMIT.fullmatch(before):
                raise
            log.warning("%s cannot be reached; using what was fetched before.", remote)
            return _entry(folder / (before + kind), remote)
        target = folder / (commit + kind)
        if not target.is_dir():
            _download(hub, remote, commit, choose(files, remote, from_pickle=from_pickle), target)
        known.parent.mkdir(exist_ok=True)
        known.write_text(commit)
        return _entry(target, remote)


def choose(files: Sequence[File], remote: Remote, *, from_pickle: bool) -> list[File]:
    """The files a Vision Transformer needs: one form of its weights, and the configs beside them."""
    at_hand = {file.name: file for file in files if PLAIN_NAME.fullmatch(file.name)}
    if remote.file:
        weights = [name for name in at_hand if name == remote.file]
    else:
        weights = _preferred(list(at_hand), remote, PICKLED if from_pickle else SAFE)
    if weights == [INDEX]:
        weights += [name for name in at_hand if SHARD.fullmatch(name)]
    if not weights:
        pickles = not from_pickle and any(name.endswith((".bin", ".pth", ".pt")) for name in at_hand)
        raise CheckpointError(
            f"{remote} holds no {remote.file or 'weights'}: {shown(', '.join(sorted(at_hand)), 300)}.",
            "A model has .safetensors or .npz weights.",
            f"It has a pickle. If you trust its origin: vitrail convert --from-pickle {remote} OUT" if pickles else "",
        )
    folder = remote.file.rpartition("/")[0]
    configs = [f"{folder}/{config}".lstrip("/") for config in CONFIGS]
    return [at_hand[name] for name in dict.fromkeys(weights + configs) if name in at_hand]


def _preferred(names: Sequence[str], remote: Remote, patterns: Sequence[str]) -> list[str]:
    """The name that matches the first pattern any name matches."""
    top = [name for name in names if "/" not in name]
    for pattern in patterns:
        found = [name for name in top if name == pattern or (pattern[0] == "*" and name.endswith(pattern[1:]))]
        if len(found) > 1:
            raise CheckpointError(
                f"{remote} holds {len(found)} weight files: {shown(', '.join(found), 300)}.",
                "One model is fetched at a time.",
                f"Name it: {MARK}{remote.repo}/{found[0]}@{remote.revision}",
            )
        if found:
            return found
    return []


def _library() -> ModuleType:
    """huggingface_hub, without its telemetry, its progress bars and its second transfer protocol."""
    for name in ("DISABLE_TELEMETRY", "DISABLE_PROGRESS_BARS", "DISABLE_XET"):
        os.environ.setdefault(f"HF_HUB_{name}", "1")
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")
    try:
        import huggingface_hub
        from huggingface_hub import constants
    except ImportError as error:
        raise EnvironmentProblem(
            "Models on a hub need the huggingface_hub package, which is not installed.",
            "It is an extra of vitrail.",
            "pip install 'vitrail[hub]'",
        ) from error
    # Another library may have imported it before, with other settings.
    constants.HF_HUB_DISABLE_TELEMETRY = constants.HF_HUB_DISABLE_XET = True
    return huggingface_hub


def _endpoint() -> str | None:
    return os.environ.get("HF_ENDPOINT") or None


def _listing(hub: ModuleType, remote: Remote) -> tuple[str, list[File]]:
    """The commit a revision means, and the files it has."""
    with _explained(remote):
        info: Any = hub.HfApi(endpoint=_endpoint()).model_info(
            remote.repo, revision=remote.revision, files_metadata=True, timeout=SECONDS
        )
    if not COMMIT.fullmatch(info.sha or ""):
        raise CheckpointError(f"{remote}: the hub gives no commit for this revision.", "", "Try again later.")
    return info.sha, [
        File(each.rfilename, each.size or 0, each.lfs.sha256 if each.lfs else "", each.blob_id or "")
        for each in info.siblings or ()
    ]


def _download(hub: ModuleType, remote: Remote, commit: str, files: Sequence[File], target: Path) -> None:
    """Every file, verified, under a name that says so only once all are there."""
    part = target.with_name(target.name + ".part")
    for file in files:
        log.info("fetching %s, %s bytes", file.name, f"{file.size:,}")
        with _explained(remote):
            path = Path(
                hub.hf_hub_download(
                    remote.repo, file.name, revision=commit, local_dir=part, cache_dir=part / ".cache",
                    endpoint=_endpoint(), etag_timeout=SECONDS,
                )
            )  # fmt: skip
        _verify(remote, file, path)
    part.rename(target)


def _verify(remote: Remote, file: File, path: Path) -> None:
    """The content is what the hub lists; huggingface_hub compares sizes only."""
    digest, expected = (hashlib.sha256(), file.sha256) if file.sha256 else (hashlib.sha1(), file.blob)
    size = path.stat().st_size
    if not file.sha256:
        digest.update(b"blob %d\0" % size)  # how git names a file
    with path.open("rb") as content:
        while piece := content.read(2**20):
            digest.update(piece)
    if digest.hexdigest() != expected:
        path.unlink()
        raise CheckpointError(
            f"{remote}: {file.name} arrived damaged ({size:,} bytes, checksum {digest.hexdigest()[:12]}…).",
            f"The hub lists {file.size:,} bytes, checksum {expected[:12] or 'none'}….",
            "It was removed. Fetch it again; if it happens again, a proxy or mirror alters it.",
        )


def _entry(target: Path, remote: Remote) -> Path:
    """The folder, or the one file that was asked for."""
    return target / remote.file if remote.file else target


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One process at a time fetches a model; the others wait and find it there."""
    import filelock  # comes with huggingface_hub

    try:
        folder.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(folder / ".lock"):
            yield
    except OSError as error:
        raise EnvironmentProblem(
            f"The cache {folder} cannot be used: {error.strerror or error}.",
            "Downloads are kept in a folder that is writable and has room.",
            "Name another one in VITRAIL_CACHE.",
        ) from error


@contextmanager
def _explained(remote: Remote) -> Iterator[None]:
    """What the library raises, in our words."""
    from huggingface_hub import constants, errors

    where = _endpoint() or constants.ENDPOINT
    try:
        yield
    except errors.GatedRepoError as error:
        raise CheckpointError(
            f"{remote} is gated.",
            "Its owner grants access on request.",
            f"Ask on {where}/{remote.repo}, then set HF_TOKEN.",
        ) from error
    except errors.RevisionNotFoundError as error:
        raise CheckpointError(
            f"{remote.repo} has no revision '{remote.revision}'.", "", "Check its spelling."
        ) from error
    except errors.HfHubHTTPError as error:
        if error.response.status_code in (401, 403, 404):
            raise CheckpointError(
                f"{where} has no model '{remote.repo}' for you.",
                "The name is owner/name; a private model needs a token.",
                "Check the spelling, or set HF_TOKEN.",
            ) from error
        raise EnvironmentProblem(
            f"{where} answered with an error: {shown(str(error).splitlines()[0], 200)}",
            "The hub answers.",
            "Try again later, or download the files by hand and name their folder.",
        ) from error
    except Exception as error:  # httpx's family, whose package changes its name between versions; and OSError
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the disk; _locked explains it
        if "Consistency check" in str(error):
            raise CheckpointError(
                f"{remote}: a file arrived cut short or too long.",
                "Its size is the one the hub lists.",
                "Fetch it again; what is complete is kept.",
            ) from error
        raise EnvironmentProblem(
            f"{where} cannot be reached: {shown(str(error), 200)}",
            f"The network is needed to fetch {remote}.",
            "Connect, or download the files elsewhere and name their folder.",
        ) from error
