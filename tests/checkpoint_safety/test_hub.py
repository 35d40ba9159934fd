"""Fetching from a hub: what is asked of it, what is believed, and what is left behind. All on loopback."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch

from vitrail.checkpoint import container, hub
from vitrail.errors import CheckpointError, EnvironmentProblem, UsageError

CONFIG = b'{"model_type": "vit", "hidden_size": 8}'


@pytest.fixture
def tiny(stand_in, tmp_path):
    """A hub that holds one small model, and much that nobody needs."""
    weights = tmp_path / "model.safetensors"
    container.write_safetensors(weights, {"a": torch.arange(50_000.0)})
    stand_in.files = {
        "config.json": CONFIG,
        "preprocessor_config.json": b"{}",
        "model.safetensors": weights.read_bytes(),
        "pytorch_model.bin": b"a pickle",
        "README.md": b"# hello",
        "onnx/model.onnx": b"graph",
    }
    return stand_in


def test_a_model_arrives_whole_and_nothing_else_does(tiny):
    folder = hub.fetch("hf:tiny/vit")
    names = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    assert names == {"config.json", "preprocessor_config.json", "model.safetensors"}
    assert torch.equal(container.read(folder / "model.safetensors").tensors["a"], torch.arange(50_000.0))
    assert not tiny.asked_for("GET", "pytorch_model.bin")
    assert folder.is_relative_to(os.environ["VITRAIL_CACHE"])


def test_the_second_fetch_downloads_nothing_and_a_pinned_one_does_not_even_ask(tiny):
    first = hub.fetch("hf:tiny/vit")
    tiny.requests.clear()
    assert hub.fetch("hf:tiny/vit") == first
    assert [path for _, path, _ in tiny.requests] == ["/api/models/tiny/vit/revision/main"]
    tiny.requests.clear()
    assert hub.fetch(f"hf:tiny/vit@{tiny.commit}") == first
    assert tiny.requests == []


def test_a_cut_connection_is_resumed_where_it_broke(tiny, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 2**14)  # 10 MB, which our tiny model is not
    tiny.cut = {"model.safetensors": 1}
    folder = hub.fetch("hf:tiny/vit")
    assert (folder / "model.safetensors").read_bytes() == tiny.files["model.safetensors"]
    ranges = [asked for asked in tiny.asked_for("GET", "model.safetensors") if asked]
    assert ranges
    assert int(ranges[-1].removeprefix("bytes=").rstrip("-")) > 0


def test_after_a_failed_fetch_only_what_is_missing_is_fetched_again(tiny):
    damaged = bytearray(tiny.files["preprocessor_config.json"])
    damaged[-1] ^= 1
    tiny.sent = {"preprocessor_config.json": bytes(damaged)}
    with pytest.raises(CheckpointError):
        hub.fetch("hf:tiny/vit")
    assert tiny.asked_for("GET", "model.safetensors")
    tiny.sent = {}
    tiny.requests.clear()
    folder = hub.fetch("hf:tiny/vit")
    assert (folder / "preprocessor_config.json").read_bytes() == b"{}"
    assert not tiny.asked_for("GET", "model.safetensors")


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_content_that_differs_from_the_listing_is_refused_and_removed(tiny, name):
    damaged = bytearray(tiny.files[name])
    damaged[len(damaged) // 2] ^= 1
    tiny.sent = {name: bytes(damaged)}
    with pytest.raises(CheckpointError, match=f"{name} arrived damaged") as caught:
        hub.fetch("hf:tiny/vit")
    assert caught.value.exit_code == 4
    cache = Path(os.environ["VITRAIL_CACHE"])
    assert not [path for path in cache.rglob(name) if path.read_bytes() == bytes(damaged)]
    assert not (cache / "hub" / "tiny--vit" / tiny.commit).exists()


def test_content_of_another_size_is_refused(tiny):
    tiny.sent = {"model.safetensors": tiny.files["model.safetensors"][:-8]}
    with pytest.raises(CheckpointError, match=r"cut short or too long|arrived damaged"):
        hub.fetch("hf:tiny/vit")


@pytest.mark.parametrize(
    ("status", "code", "kind", "message"),
    [
        (404, "RepoNotFound", CheckpointError, "has no model 'tiny/vit' for you"),
        (401, "", CheckpointError, "has no model 'tiny/vit' for you"),
        (403, "GatedRepo", CheckpointError, "is gated"),
        (500, "", EnvironmentProblem, "answered with an error"),
    ],
)
def test_the_hubs_refusals_are_explained(tiny, status, code, kind, message):
    tiny.status, tiny.error_code = status, code
    with pytest.raises(kind, match=message) as caught:
        hub.fetch("hf:tiny/vit")
    assert len(str(caught.value).splitlines()) == 3


def test_an_unknown_revision_is_named(tiny):
    with pytest.raises(CheckpointError, match="no revision 'v9'"):
        hub.fetch("hf:tiny/vit@v9")


def test_without_a_network_the_message_says_so_and_what_was_fetched_still_works(tiny, monkeypatch, caplog):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(EnvironmentProblem, match="cannot be reached"):
        hub.fetch("hf:tiny/vit")
    monkeypatch.setenv("HF_ENDPOINT", tiny.url)
    folder = hub.fetch("hf:tiny/vit")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert hub.fetch("hf:tiny/vit") == folder
    assert "cannot be reached" in caplog.text


def test_a_pickle_is_fetched_only_on_request(tiny):
    del tiny.files["model.safetensors"]
    with pytest.raises(CheckpointError, match="convert --from-pickle hf:tiny/vit"):
        hub.fetch("hf:tiny/vit")
    assert not tiny.asked_for("GET", "pytorch_model.bin")
    assert (hub.fetch("hf:tiny/vit", from_pickle=True) / "pytorch_model.bin").read_bytes() == b"a pickle"


def test_shards_come_with_their_index(tiny):
    content = tiny.files.pop("model.safetensors")
    shards = {f"model-0000{n}-of-00002.safetensors": content for n in (1, 2)}
    tiny.files |= {hub.INDEX: b'{"weight_map": {}}', **shards, "model-0000x.safetensors": b"no"}
    names = {path.name for path in hub.fetch("hf:tiny/vit").iterdir()}
    assert {hub.INDEX, *shards, "config.json"} <= names
    assert "model-0000x.safetensors" not in names


def test_several_weight_files_are_a_question_and_naming_one_is_the_answer(tiny):
    content = tiny.files.pop("model.safetensors")
    tiny.files |= {"B_16.npz": content, "L_16.npz": content}
    with pytest.raises(CheckpointError, match=r"hf:tiny/vit/B_16\.npz@main"):
        hub.fetch("hf:tiny/vit")
    assert hub.fetch("hf:tiny/vit/L_16.npz").name == "L_16.npz"
    assert not (hub.fetch("hf:tiny/vit/L_16.npz").parent / "B_16.npz").exists()


def test_names_that_lead_out_of_the_cache_are_not_fetched(tiny):
    tiny.files |= {"../../evil.safetensors": b"x", "/etc/evil.npz": b"x", "model.safetensors/../../x": b"x"}
    hub.fetch("hf:tiny/vit")
    assert not [path for _, path, _ in tiny.requests if "evil" in path]


def test_the_hub_is_told_nothing_about_this_machine(tiny):
    hub.fetch("hf:tiny/vit")
    assert {path.split("/")[1] for _, path, _ in tiny.requests} <= {"api", "tiny", "cdn"}
    assert not [path for _, path, _ in tiny.requests if "telemetry" in path or "agent" in path]
    agents = {headers.get("User-Agent", headers.get("user-agent", "")) for headers in tiny.headers}
    assert not [agent for agent in agents if "torch" in agent or "agent/" in agent], agents


@pytest.mark.parametrize("name", ["hf:", "hf:vit", "hf:a/b/../c", "hf:../x/y", "hf:a/b@../m", "hf:a b/c", "hf:a/b@"])
def test_a_name_that_is_none_is_refused_before_the_network(name):
    with pytest.raises(UsageError, match="does not name a model"):
        hub.parse(name)


def test_the_parts_of_a_name():
    assert hub.parse("hf:google/vit-base-patch16-224") == hub.Remote("google/vit-base-patch16-224")
    assert hub.parse("hf:a/b@v1.0") == hub.Remote("a/b", "", "v1.0")
    assert hub.parse("hf:a/b/x/B_16.npz@main") == hub.Remote("a/b", "x/B_16.npz", "main")
    assert not hub.is_remote("a/b")


def test_a_missing_extra_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)  # how Python marks what cannot be imported
    monkeypatch.setenv("VITRAIL_CACHE", str(tmp_path / "cache"))
    with pytest.raises(EnvironmentProblem, match=r"pip install 'vitrail\[hub\]'"):
        hub.fetch("hf:a/b")
    assert not (tmp_path / "cache").exists()
