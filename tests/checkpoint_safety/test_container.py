"""Named tensors in and out of files: the same numbers, the same bytes, within the memory of the file."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vitrail.checkpoint import container
from vitrail.checkpoint.entry import DTYPES
from vitrail.errors import CheckpointError, EnvironmentProblem

WRITERS = {"npz": container.write_npz, "safetensors": container.write_safetensors}
FORMATS = pytest.mark.parametrize("ending", WRITERS)
NAMES = st.text(st.characters(categories=["L", "N"], include_characters="._-/ "), min_size=1, max_size=20).filter(
    lambda name: name.isprintable() and not name.startswith("/") and ".." not in name and name[1:2] != ":"
)


def same(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Equal in type, shape and every bit."""
    return left.dtype == right.dtype and left.shape == right.shape and bits(left) == bits(right)


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


@st.composite
def tensors(draw) -> dict[str, torch.Tensor]:
    made = {}
    for name in draw(st.lists(NAMES, max_size=5, unique=True)):
        shape = draw(st.lists(st.integers(0, 4), max_size=4))
        dtype = draw(st.sampled_from(list(DTYPES.values())))
        tensor = (torch.rand(shape, generator=torch.Generator().manual_seed(0)) * 5).to(dtype)
        made[name] = tensor.transpose(0, -1) if shape and draw(st.booleans()) else tensor
    return made


@FORMATS
@given(written=tensors())
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_whatever_is_written_is_read_back_bit_for_bit(written, ending, tmp_path):
    path = tmp_path / f"w.{ending}"
    WRITERS[ending](path, written)
    found = container.read(path).tensors
    assert set(found) == set(written)
    assert all(same(found[name], tensor) for name, tensor in written.items())


@FORMATS
def test_the_same_tensors_make_the_same_bytes(ending, tmp_path):
    written = {"b": torch.arange(6.0).view(2, 3), "a/k": torch.ones(3, dtype=torch.bfloat16)}
    for name in ("one", "two"):
        WRITERS[ending](tmp_path / name, written)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_numpy_reads_what_we_write_and_we_read_what_numpy_writes(tmp_path):
    ours, theirs, packed = tmp_path / "ours.npz", tmp_path / "theirs.npz", tmp_path / "packed.npz"
    container.write_npz(ours, {"a/kernel": torch.arange(6.0).view(2, 3), "b": torch.ones(2, dtype=torch.bfloat16)})
    with np.load(ours) as archive:
        assert archive["a/kernel"].tolist() == [[0, 1, 2], [3, 4, 5]]
        assert archive["b"].dtype == np.dtype("V2")
        np.savez(theirs, **archive, fortran=np.asfortranarray(archive["a/kernel"]), big=np.arange(3, dtype=">f8"))
        np.savez_compressed(packed, **archive, zeros=np.zeros((768, 1000), "f4"))
    found = container.read(theirs).tensors
    assert torch.equal(found["fortran"], torch.arange(6.0).view(2, 3))
    assert found["fortran"].is_contiguous()
    assert torch.equal(found["big"], torch.arange(3, dtype=torch.float64))
    assert torch.equal(found["b"], torch.ones(2, dtype=torch.bfloat16))
    assert not container.read(packed).tensors["zeros"].any()  # a fresh head of zeros is no bomb


def test_safetensors_own_library_agrees_in_both_directions(tmp_path):
    written = {name: (torch.rand(3, 5) * 9).to(dtype) for name, dtype in DTYPES.items()}
    container.write_safetensors(tmp_path / "ours", written, {"note": "é"})
    safetensors.torch.save_file(written, tmp_path / "theirs", {"note": "é"})
    assert all(same(tensor, written[name]) for name, tensor in safetensors.torch.load_file(tmp_path / "ours").items())
    read = container.read(tmp_path / "theirs")
    assert all(same(tensor, written[name]) for name, tensor in read.tensors.items())
    assert read.metadata == {"note": "é"}
    assert container.read(tmp_path / "ours").metadata == {"format": "pt", "note": "é"}
    assert read.dtypes == {name: tensor.dtype for name, tensor in written.items()}


@FORMATS
def test_nan_is_read_only_when_it_is_allowed(ending, tmp_path):
    path = tmp_path / f"w.{ending}"
    values = torch.ones(600_000)
    values[599_999] = float("inf")
    WRITERS[ending](path, {"a": values})
    with pytest.raises(CheckpointError, match="'a' holds NaN or infinity, first at element 599,999 of 600,000"):
        container.read(path)
    assert torch.equal(container.read(path, allow_nonfinite=True).tensors["a"], values)


@FORMATS
def test_a_name_nobody_could_read_back_is_not_written(ending, tmp_path):
    for name in ("", "../a", "a\nb", "x" * 600):
        with pytest.raises(CheckpointError):
            WRITERS[ending](tmp_path / "w", {name: torch.ones(1)})
    with pytest.raises(CheckpointError, match="complex64"):
        WRITERS[ending](tmp_path / "w", {"a": torch.ones(1, dtype=torch.complex64)})
    assert list(tmp_path.iterdir()) == []


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    for ending, write in WRITERS.items():
        write(tmp_path / f"w.{ending}", {"a": torch.ones(3)})
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    program = (
        "import resource, signal, sys, torch; from pathlib import Path\n"
        "from vitrail.checkpoint import container; from vitrail.errors import EnvironmentProblem\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "for ending in ('npz', 'safetensors'):\n"
        "    try: getattr(container, f'write_{ending}')(Path(f'w.{ending}'), {'a': torch.ones(100_000)})\n"
        "    except EnvironmentProblem as error: print(error.exit_code)\n"
    )
    run = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["5", "5"]
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_writing_into_a_folder_that_is_not_there_says_so(tmp_path):
    with pytest.raises(EnvironmentProblem, match="could not be written"):
        container.write_npz(tmp_path / "no" / "w.npz", {"a": torch.ones(1)})


def test_a_file_others_may_write_to_is_copied_and_survives_being_cut_short(tmp_path):
    path = tmp_path / "w.safetensors"
    container.write_safetensors(path, {"a": torch.ones(2**20)})
    for target, mode in ((path, 0o666), (tmp_path, 0o777)):
        before = target.stat().st_mode
        target.chmod(mode)
        tensor = container.read(path).tensors["a"]
        target.chmod(before)
        content = path.read_bytes()
        os.truncate(path, 100)  # under a map, the next line would end this process with SIGBUS
        assert float(tensor.sum()) == 2**20
        path.write_bytes(content)


def test_writing_into_a_mapped_tensor_changes_memory_and_not_the_file(tmp_path):
    path = tmp_path / "w.safetensors"
    container.write_safetensors(path, {"a": torch.ones(2**20)})
    before = path.read_bytes()
    container.read(path).tensors["a"].zero_()
    assert path.read_bytes() == before


def test_saving_over_the_file_a_model_was_loaded_from_leaves_the_model_as_it_was(tmp_path):
    path = tmp_path / "w.safetensors"
    container.write_safetensors(path, {"a": torch.ones(2**20)})
    loaded = container.read(path).tensors
    container.write_safetensors(path, {"a": loaded["a"] * 2})
    assert float(loaded["a"].sum()) == 2**20
    assert float(container.read(path).tensors["a"][0]) == 2


def test_neighbours_of_one_shape_share_a_map_that_goes_when_the_last_of_them_goes(tmp_path):
    path = tmp_path / "w.safetensors"
    written = {name: torch.full((2**18,), float(number)) for number, name in enumerate("qkv")}
    container.write_safetensors(path, {**written, "other": torch.ones(2**19)})
    tensors = container.read(path).tensors
    assert len({tensor.untyped_storage().data_ptr() for tensor in tensors.values()}) == 2
    tensors["q"] += 1  # in memory, not in the file
    assert torch.equal(tensors["k"], written["k"])
    assert torch.equal(container.read(path).tensors["q"], written["q"])


def test_an_infinity_in_a_shared_map_is_blamed_on_its_tensor(tmp_path):
    path = tmp_path / "w.safetensors"
    tensors = {name: torch.ones(2**18) for name in "qkv"}
    tensors["k"][77] = float("inf")
    container.write_safetensors(path, tensors)
    with pytest.raises(CheckpointError, match="tensor 'k' holds NaN or infinity, first at element 77 of 262,144"):
        container.read(path)


def test_many_large_tensors_do_not_use_up_the_descriptors(tmp_path):
    path = tmp_path / "w.safetensors"
    container.write_safetensors(path, {f"t{number}": torch.ones(2**18) for number in range(40)})
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    open_now = len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").is_dir() else 0
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_now + 40, limits[1]))
    try:
        tensors = container.read(path).tensors
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert sum(float(tensor[0]) for tensor in tensors.values()) == 40


def test_loading_takes_the_memory_of_the_file_and_popping_gives_it_back(tmp_path):
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("peak memory is read from /proc")
    for ending, write in WRITERS.items():
        write(tmp_path / f"w.{ending}", {f"t{number}": torch.full((2**20,), 1.5) for number in range(32)})
    program = (
        "import torch; from pathlib import Path; from vitrail.checkpoint import container\n"
        "read = lambda field: int(Path('/proc/self/status').read_text().split(field)[1].split()[0]) / 1024\n"
        "for ending in ('npz', 'safetensors'):\n"
        "    Path('/proc/self/clear_refs').write_text('5'); before = read('VmRSS:')\n"
        "    found = container.read(Path(f'w.{ending}')).tensors; peak = read('VmHWM:') - before\n"
        "    while found: found.popitem()\n"
        "    print(peak, read('VmRSS:') - before)\n"
    )
    run = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    for line in run.stdout.splitlines():
        peak, left = map(float, line.split())
        assert peak <= 1.15 * 128, f"{peak:.0f} MB for a file of 128"
        assert left <= 16, f"{left:.0f} MB are left after the tensors are gone"


def test_json_of_the_usual_size_is_read(tmp_path):
    path = tmp_path / "config.json"
    labels = ", ".join(f'"{number}": "tench, Tinca tinca {number}"' for number in range(21_843))
    path.write_text(f'{{"hidden_size": 768, "id2label": {{{labels}}}}}')
    assert len(container.read_json(path)["id2label"]) == 21_843
    with pytest.raises(CheckpointError, match="bytes long"):
        container.read_json(path, limit=1000)
