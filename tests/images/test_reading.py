"""Does a path give its bytes or a reason, at once, whatever it names?"""

import os
import pickle
import socket
import tempfile
import threading
from pathlib import Path

import pytest

from vitrail.errors import DataError
from vitrail.images import reading
from vitrail.images.reading import BadPicture, Limits, check_size, read_file, shown


def reason(path, limits=reading.PREDICTING):
    with pytest.raises(BadPicture) as caught:
        read_file(path, limits)
    return caught.value.reason


def test_a_file_gives_its_bytes(tmp_path):
    (tmp_path / "a").write_bytes(b"abc" * 100_000)
    assert read_file(tmp_path / "a") == b"abc" * 100_000
    assert read_file(str(tmp_path / "a")) == b"abc" * 100_000


def test_what_is_no_file_has_a_reason_and_nobody_waits(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    (tmp_path / "empty").touch()
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(tmp_path / "s"))
        expected = {
            "pipe": "not_a_file",
            "s": "not_a_file",
            "": "not_a_file",
            "loop": "symlink_loop",
            "gone": "missing",
            "nowhere": "missing",
            "empty": "empty",
            "empty/below": "missing",
            "x" * 300: "missing",
        }
        found = {name: reason(tmp_path / name) for name in expected}
    assert found == expected
    assert reason("/dev/zero") == "not_a_file"


def test_opening_a_pipe_by_mistake_does_not_wake_its_writer(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=lambda: open(tmp_path / "pipe", "wb").close(), daemon=True)  # noqa: PTH123
    writer.start()
    assert reason(tmp_path / "pipe") == "not_a_file"
    writer.join(0.05)
    assert writer.is_alive()
    os.close(os.open(tmp_path / "pipe", os.O_RDONLY))
    writer.join(5)


def test_a_file_that_turns_into_a_pipe_after_the_first_look_is_refused(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    regular = Path(__file__).stat()
    monkeypatch.setattr(os, "stat", lambda path: regular)
    assert reason(tmp_path / "pipe") == "not_a_file"


def test_a_file_above_the_limit_is_refused_before_it_is_read(tmp_path):
    with (tmp_path / "big").open("wb") as file:
        file.truncate(2**40)
    assert reason(tmp_path / "big") == "too_many_bytes"
    (tmp_path / "eleven").write_bytes(b"x" * 11)
    assert reason(tmp_path / "eleven", Limits(file_bytes=10)) == "too_many_bytes"
    assert read_file(tmp_path / "eleven", Limits(file_bytes=11)) == b"x" * 11


def test_a_name_that_is_not_text_is_a_row_that_can_be_written():
    path = os.fsdecode(b"caf\xe9.jpg")
    assert reason(path) == "undecodable_name"
    assert reason("a\0b") == "undecodable_name"
    assert shown(path) == r"caf\xe9.jpg"
    assert shown("café.jpg").encode()


@pytest.fixture
def nobody():
    """Root may read everything; for one test the process is an ordinary user."""
    if os.getuid() == 0:
        os.seteuid(65534)
    yield
    if os.getuid() == 0:
        os.seteuid(0)


@pytest.fixture
def open_folder():
    """A folder that others may enter, unlike tmp_path."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_a_file_without_permission_is_unreadable_and_so_is_a_folder(open_folder, request):
    (open_folder / "secret.jpg").write_bytes(b"x")
    (open_folder / "open.jpg").write_bytes(b"x")
    (open_folder / "folder").mkdir()
    (open_folder / "secret.jpg").chmod(0)
    (open_folder / "folder").chmod(0)
    request.getfixturevalue("nobody")
    assert reason(open_folder / "secret.jpg") == "unreadable"
    assert reason(open_folder / "folder") == "unreadable"
    assert reason(open_folder / "folder" / "x.jpg") == "unreadable"
    assert read_file(open_folder / "open.jpg") == b"x"


def test_limits_on_size_name_the_limit():
    with pytest.raises(BadPicture, match="At most 32,768"):
        check_size(40_000, 1, Limits())
    with pytest.raises(BadPicture, match="At most 256,000,000"):
        check_size(30_000, 30_000, Limits())
    check_size(16_000, 16_000, Limits())


def test_the_error_survives_a_worker_process_and_makes_one_line():
    error = BadPicture("empty", "The file\nis empty.", "A picture.", "Remove it.")
    again = pickle.loads(pickle.dumps(error))
    assert (again.reason, str(again), again.row) == ("empty", str(error), "empty: The file is empty.")
    assert isinstance(again, DataError)
    assert again.exit_code == 3
