"""Do the runtimes keep to themselves: no network, no telemetry, no file outside the cache?"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

WATCHED = """
import json, os, socket, sys
from pathlib import Path

attempts = []

def refuse(event, arguments):
    if event in ("socket.__new__", "socket.connect", "socket.getaddrinfo", "urllib.Request", "subprocess.Popen"):
        attempts.append(event)
        raise RuntimeError(event)

sys.addaudithook(refuse)
sys.path.insert(0, {tests!r})
from families import noise, tiny
from vitrail.engines.cache import Cache
from vitrail.engines.choose import open_engine

model, cache = tiny("plain"), Cache(Path({cache!r}))
for name in ("openvino", "onnxruntime", "torch"):
    for again in range(2):
        open_engine(model, engine=name, precision="exact", cache=cache).run(noise(model))
    descriptors = Path("/proc/self/fd")  # no audit hook sees what native code opens
    open_now = [str(path.readlink()) for path in descriptors.glob("*") if path.is_symlink()]
    attempts += [target for target in open_now if target.startswith("socket:")]
telemetry = [name for name in sys.modules if "telemetry" in name and sys.modules[name] is not None]
print(json.dumps([attempts, telemetry]))
"""


def test_engines_open_no_socket_start_no_program_and_write_only_into_their_cache(tmp_path):
    pytest.importorskip("openvino", reason="the extra `fast` is not installed")
    home, cache, work = tmp_path / "home", tmp_path / "cache", tmp_path / "work"
    for folder in (home, work):
        folder.mkdir()
    (home / "intel").mkdir()  # the user once agreed to OpenVINO's telemetry, for something else
    (home / "intel" / "openvino_telemetry").write_text("1")
    before = sorted(home.rglob("*"))
    code = WATCHED.format(tests=str(Path(__file__).parent), cache=str(cache))
    environment = os.environ | {"HOME": str(home), "TMPDIR": str(work), "PYTHONDONTWRITEBYTECODE": "1"}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=work, env=environment)
    assert ran.returncode == 0, ran.stderr
    attempts, telemetry = json.loads(ran.stdout)
    assert attempts == []
    assert telemetry == []
    assert sorted(home.rglob("*")) == before
    assert list(work.iterdir()) == []
    assert ran.stderr == ""
    assert sorted(path.name for path in cache.iterdir()) == ["choices", "graphs"]
