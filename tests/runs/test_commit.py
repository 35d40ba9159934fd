"""Is a checkpoint either whole or not there, whatever happens to it?"""

from __future__ import annotations

import errno
import hashlib
import os
import random
import shutil
from pathlib import Path

import pytest

from vitrail.errors import CheckpointError
from vitrail.runs import commit, manifest
from vitrail.runs.commit import NoRoom, newest, tidy


def write(content: str) -> commit.Writer:
    def into(folder: Path) -> None:
        (folder / "state.bin").write_bytes(content.encode() * 300)
        (folder / "state.json").write_text(f'{{"content": "{content}"}}')

    return into


def chosen(folder: Path) -> Path:
    best, _ = newest(folder)
    assert best is not None
    return best.path


def hashes(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def test_a_commit_leaves_the_newest_checkpoints_and_nothing_else(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        commit.commit(tmp_path, step, 10_000, write(str(step)), keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["LATEST", "step-000000020", "step-000000030"]
    assert (tmp_path / "LATEST").read_text() == "step-000000030\n"
    best, damaged = newest(tmp_path)
    assert best is not None
    assert (best.step, best.serial, damaged) == (30, 3, [])


def test_the_same_step_can_be_committed_again_and_the_later_one_counts(tmp_path: Path) -> None:
    commit.commit(tmp_path, 10, 10_000, write("before the evaluation"))
    commit.commit(tmp_path, 10, 10_000, write("after it"))
    assert "after it" in (chosen(tmp_path) / "state.json").read_text()
    assert [path.name for path in tmp_path.glob("*step*")] == ["step-000000010"]


def damage_one_bit(path: Path, dice: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
    path.write_bytes(content)


def cut_short(path: Path, dice: random.Random) -> None:
    os.truncate(path, dice.randrange(path.stat().st_size))


def test_every_changed_bit_and_every_truncation_is_noticed_and_the_checkpoint_before_is_used(tmp_path: Path) -> None:
    for step in (10, 20):
        commit.commit(tmp_path, step, 10_000, write(str(step)))
    names = [path.name for path in (tmp_path / "step-000000020").iterdir()]
    assert sorted(names) == ["MANIFEST.json", "state.bin", "state.json"]
    for variant in range(600):
        dice = random.Random(variant)
        victim = tmp_path / "step-000000020" / names[variant % 3]
        before = victim.read_bytes()
        [damage_one_bit, cut_short][variant // 3 % 2](victim, dice)
        best, damaged = newest(tmp_path)
        assert best is not None, variant
        assert best.path.name == "step-000000010", variant
        assert [one.path.name for one in damaged] == ["step-000000020"], variant
        victim.write_bytes(before)
    assert chosen(tmp_path).name == "step-000000020"


def test_a_missing_file_counts_as_damage(tmp_path: Path) -> None:
    commit.commit(tmp_path, 10, 10_000, write("a"))
    commit.commit(tmp_path, 20, 10_000, write("b"))
    (tmp_path / "step-000000020" / "state.bin").unlink()
    assert chosen(tmp_path).name == "step-000000010"


def test_damaged_checkpoints_are_set_aside_kept_and_never_in_the_way(tmp_path: Path) -> None:
    commit.commit(tmp_path, 10, 10_000, write("a"))
    commit.commit(tmp_path, 20, 10_000, write("b"))
    damage_one_bit(tmp_path / "step-000000020" / "state.bin", random.Random(0))
    tidy(tmp_path, *newest(tmp_path))
    kept = hashes(tmp_path / "damaged-step-000000020")
    for step in (20, 30, 40):
        commit.commit(tmp_path, step, 10_000, write("c"), keep=1)
    assert hashes(tmp_path / "damaged-step-000000020") == kept
    best, damaged = newest(tmp_path)
    assert best is not None
    assert (best.step, best.serial, damaged) == (40, 5, [])


def test_a_checkpoint_that_was_complete_but_not_yet_renamed_is_found_and_named(tmp_path: Path) -> None:
    commit.commit(tmp_path, 10, 10_000, write("a"))
    commit.commit(tmp_path, 20, 10_000, write("b"))
    (tmp_path / "step-000000020").rename(tmp_path / ".writing-step-000000020")
    best = tidy(tmp_path, *newest(tmp_path))
    assert best is not None
    assert (best.path.name, best.step) == ("step-000000020", 20)
    assert manifest.verify(best.path).step == 20


def test_a_half_written_checkpoint_is_no_loss_and_is_cleared_away(tmp_path: Path) -> None:
    commit.commit(tmp_path, 10, 10_000, write("a"))
    shutil.copytree(tmp_path / "step-000000010", tmp_path / ".writing-step-000000020")
    (tmp_path / ".writing-step-000000020" / manifest.NAME).unlink()
    best, damaged = newest(tmp_path)
    tidy(tmp_path, best, damaged)
    assert damaged == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["LATEST", "step-000000010"]


def test_with_too_little_space_older_checkpoints_go_first_and_the_newest_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in (10, 20):
        commit.commit(tmp_path, step, 10_000, write(str(step)), keep=3)
    before = hashes(tmp_path / "step-000000020")
    monkeypatch.setattr(commit, "free_bytes", lambda folder: 11_999)
    with pytest.raises(NoRoom) as refused:
        commit.commit(tmp_path, 30, 10_000, write("30"), keep=3)
    assert refused.value.exit_code == 5
    assert hashes(tmp_path / "step-000000020") == before
    assert not (tmp_path / "step-000000010").exists()


def test_an_error_of_the_writer_leaves_no_trace(tmp_path: Path) -> None:
    commit.commit(tmp_path, 10, 10_000, write("a"))

    def refuse(folder: Path) -> None:
        (folder / "state.bin").write_bytes(b"half")
        raise CheckpointError("A tensor is not finite.")

    with pytest.raises(CheckpointError):
        commit.commit(tmp_path, 20, 10_000, refuse)
    assert chosen(tmp_path).name == "step-000000010"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["LATEST", "step-000000010"]


@pytest.mark.parametrize("call", ["next_serial", "prune"])
def test_a_disk_that_fails_before_or_after_writing_is_said_like_one_that_is_full(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit.commit(tmp_path, 10, 10_000, write("ten"))

    def failing(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(commit, call, failing)
    with pytest.raises(NoRoom, match="Input/output error"):
        commit.commit(tmp_path, 20, 10_000, write("twenty"))
    best, damaged = newest(tmp_path)
    assert best is not None
    assert (best.step, damaged) == (20 if call == "prune" else 10, [])
