"""Is every file that was meant on the list once, in order, and everything else counted?"""

import io
import os
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vitrail.errors import DataError
from vitrail.images.decode import decode
from vitrail.images.listing import list_inputs, parse_list
from vitrail.images.reading import BadPicture


@pytest.fixture
def photos(tmp_path):
    for name in (
        "b.jpg",
        "a.png",
        "sub/deep/c.tif",
        "sub/d e.JPG",
        "sub/é.jpg",
        "notes",
        "[odd]*.jpg",
        "new\nline.png",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    for name in (".hidden.jpg", ".DS_Store", "Thumbs.db", "sub/desktop.ini", "__MACOSX/._b.jpg", ".git/config"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    return tmp_path


def names(inputs, root):
    return [os.path.relpath(str(item), root) for item in inputs.items]


ALL = sorted(["[odd]*.jpg", "a.png", "b.jpg", "new\nline.png", "notes", "sub/d e.JPG", "sub/deep/c.tif", "sub/é.jpg"])


def test_a_folder_is_everything_in_it_in_order_and_what_is_skipped_is_counted(photos):
    inputs = list_inputs([photos])
    assert names(inputs, photos) == ALL
    assert inputs.skipped == {"hidden": 3, "system": 3}


def test_a_file_named_twice_is_listed_once(photos):
    assert names(list_inputs([photos, photos / "b.jpg", photos, photos / "sub"]), photos) == ALL


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.jpg", ["[odd]*.jpg", "b.jpg"]),
        ("**/*.jpg", ["[odd]*.jpg", "b.jpg", "sub/é.jpg"]),
        ("**/*.[jJ][pP][gG]", ["[odd]*.jpg", "b.jpg", "sub/d e.JPG", "sub/é.jpg"]),
        ("sub/**", ["sub/d e.JPG", "sub/deep/c.tif", "sub/é.jpg"]),
        ("s*/?e*/*", ["sub/deep/c.tif"]),
        ("sub/**/c.*", ["sub/deep/c.tif"]),
        ("[!b].*", ["a.png"]),
        ("s?b", ["sub/d e.JPG", "sub/deep/c.tif", "sub/é.jpg"]),
        ("[odd]*.jpg", ["[odd]*.jpg"]),  # it exists, so it is no pattern
        ("**/[!b].[!t]*", ["a.png", "sub/é.jpg"]),
    ],
)
def test_patterns_mean_what_they_mean_in_a_shell(photos, monkeypatch, pattern, expected):
    assert names(list_inputs([f"{photos}/{pattern}"]), photos) == expected
    monkeypatch.chdir(photos)
    assert [os.path.normpath(str(item)) for item in list_inputs([pattern]).items] == expected


def test_a_list_comes_by_line_or_by_zero_byte():
    assert parse_list(b"a b.jpg\nc.jpg\r\n\n") == ["a b.jpg", "c.jpg"]
    assert parse_list(b"new\nline.jpg\0c.jpg\0") == ["new\nline.jpg", "c.jpg"]
    assert parse_list(b"caf\xe9.jpg\n") == [os.fsdecode(b"caf\xe9.jpg")]
    listed = list_inputs(["-"], stdin=io.BytesIO(b"b.jpg\na.jpg\nb.jpg\n"))
    assert listed.items == ("a.jpg", "b.jpg")


def test_what_does_not_exist_stays_on_the_list_to_become_an_error_row(photos):
    inputs = list_inputs([photos / "gone.jpg", photos / "b.jpg"])
    assert names(inputs, photos) == ["b.jpg", "gone.jpg"]


def test_nothing_at_all_is_an_error(photos):
    (photos / "empty").mkdir()
    for nothing in (photos / "empty", f"{photos}/*.bmp", f"{photos}/**/*.bmp"):
        with pytest.raises(DataError, match="no files"):
            list_inputs([nothing])
    with pytest.raises(DataError, match="no files"):
        list_inputs(["-"], stdin=io.BytesIO(b"\n"))


def test_links_in_circles_and_pipes_come_to_an_end(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "x.jpg").write_bytes(b"x")
    for number in range(8):  # eight ways round in each of two folders: 8^depth paths for a naive walk
        (tmp_path / "a" / f"up{number}").symlink_to(tmp_path)
        (tmp_path / "a" / "b" / f"back{number}").symlink_to(tmp_path / "a")
    (tmp_path / "self").symlink_to(tmp_path / "self")
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe.tar")
    os.mkfifo(tmp_path / "pipe.csv")
    found = {}
    for pattern in ("", "/**/*"):
        worker = threading.Thread(
            target=lambda p=pattern: found.update({p: list_inputs([f"{tmp_path}{p}"])}), daemon=True
        )
        worker.start()
        worker.join(20)
        assert not worker.is_alive()
        assert names(found[pattern], tmp_path) == ["a/x.jpg", "broken", "pipe.csv", "pipe.tar", "self"]
    assert found[""].skipped == {"link to a folder listed already": 16}
    assert list_inputs([tmp_path / "pipe.tar", tmp_path / "pipe.csv"]).items


def test_a_linked_folder_is_followed(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "x.jpg").write_bytes(b"x")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "link").symlink_to(tmp_path / "real")
    assert names(list_inputs([tmp_path / "data"]), tmp_path) == ["data/link/x.jpg"]


def test_a_name_that_is_not_text_is_listed_and_has_a_reason(tmp_path):
    (tmp_path / os.fsdecode(b"caf\xe9.jpg")).write_bytes(b"x")
    (item,) = list_inputs([tmp_path]).items
    with pytest.raises(BadPicture) as caught:
        decode(item)
    assert caught.value.reason == "undecodable_name"


def test_the_picture_column_of_a_manifest_is_a_list(photos):
    (photos / "list.csv").write_text("label,path\nx,b.jpg\ny,sub/é.jpg\n", encoding="utf-8")
    assert names(list_inputs([photos / "list.csv"]), photos) == ["b.jpg", "sub/é.jpg"]


WORDS = st.text("ab.*[]?!é-^\\ ", min_size=1, max_size=5).filter(
    lambda word: word not in (".", "..") and "**" not in word
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(WORDS, max_size=8, unique=True), WORDS)
def test_two_stars_in_front_change_nothing_in_a_flat_folder(tmp_path, files, pattern):
    folder = tmp_path / str(np.random.default_rng().integers(1 << 60))
    folder.mkdir()
    for name in files:
        (folder / name).touch()

    def matched(argument):
        try:
            return [Path(str(item)).name for item in list_inputs([argument]).items]
        except DataError:
            return []

    a_pattern = any(sign in pattern for sign in "*?") and pattern not in files and not pattern.startswith(".")
    if a_pattern and "[" not in pattern:  # what an unclosed bracket means is left open
        assert matched(f"{folder}/{pattern}") == matched(f"{folder}/**/{pattern}")
