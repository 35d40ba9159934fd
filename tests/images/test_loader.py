"""Is every file of a list in exactly one batch, in order, beside its own pixels, while memory stays flat?"""

import gc
import itertools
import os
import threading
import time
import tracemalloc

import numpy as np
import pytest
from images.drawn import encoded
from PIL import Image

from vitrail.config import Preprocess
from vitrail.errors import EnvironmentProblem
from vitrail.images import loader
from vitrail.images.loader import batches, in_order

PLAN = Preprocess(size=(4, 4), resize=(4, 4))


def coloured(folder, count, bad=()):
    """Picture number n has brightness n, so that pixels tell whose they are."""
    for number in range(count):
        data = b"no picture" if number in bad else encoded(Image.new("L", (5, 5), number))
        (folder / f"{number:03}.png").write_bytes(data)
    return [str(folder / f"{number:03}.png") for number in range(count)]


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("bad", [(), (0, 5, 6, 7, 29), tuple(range(30))])
def test_every_file_is_in_one_batch_in_order_and_pixels_belong_to_their_name(tmp_path, workers, bad):
    paths = coloured(tmp_path, 30, bad)
    made = list(batches(paths, PLAN, batch_size=4, workers=workers))
    files = [file for batch in made for file in batch.files]
    assert [file.source for file in files] == paths
    assert [file.index for file in files] == list(range(30))
    assert [file.index for file in files if file.error] == list(bad)
    for batch in made:
        assert batch.pixels.shape == (len(batch.good), 4, 4, 3)
        assert batch.pixels.dtype == np.uint8
        assert [int(pixels.mean()) for pixels in batch.pixels] == [file.index for file in batch.good]
    assert all(len(batch.good) == 4 for batch in made[:-1]) or bad == tuple(range(30))


def test_a_bad_file_has_its_reason_and_a_good_one_its_size(tmp_path):
    paths = [*coloured(tmp_path, 1), str(tmp_path / "gone.png")]
    (batch,) = batches(paths, PLAN, batch_size=8)
    good, bad = batch.files
    assert (good.width, good.height, good.error) == (5, 5, None)
    assert bad.error.row == "missing: There is no such file."
    assert bad.width is None


def test_pictures_arrays_and_bytes_mix_with_paths(tmp_path):
    sources = [Image.new("RGB", (3, 3), "white"), np.full((9, 9), 255, np.uint8), encoded(Image.new("1", (2, 2), 1))]
    (batch,) = batches([*sources, *coloured(tmp_path, 1)], PLAN, batch_size=8)
    assert [int(pixels.min()) for pixels in batch.pixels] == [255, 255, 255, 0]


def test_sixteen_bit_batches_stay_sixteen_bit():
    values = np.full((6, 6, 5), 1000, np.uint16)
    plan = Preprocess(size=(4, 4), resize=(4, 4), mean=(0.5,) * 5, std=(0.5,) * 5)
    (batch,) = batches([values] * 3, plan, batch_size=4, depth=16)
    assert (batch.pixels.dtype, batch.pixels.shape, batch.pixels.max()) == (np.uint16, (3, 4, 4, 5), 1000)
    (nothing,) = batches([b"bad"], plan, batch_size=4, depth=16)
    assert (nothing.pixels.dtype, nothing.pixels.shape) == (np.uint16, (0, 4, 4, 5))


def test_an_empty_list_has_no_batches():
    assert list(batches([], PLAN, batch_size=4)) == []


def test_the_list_is_read_only_a_little_ahead():
    taken = itertools.count()
    paths = (b"bad %d" % next(taken) for _ in range(10_000))
    stream = batches(paths, PLAN, batch_size=4)
    next(stream)
    assert next(taken) < 60


def test_bad_files_without_end_are_reported_on_the_way():
    sizes = [len(batch.files) for batch in batches([b"bad"] * 100, PLAN, batch_size=4)]
    assert sizes == [32, 32, 32, 4]


def test_work_runs_in_parallel_and_comes_back_in_order():
    meeting = threading.Barrier(3, timeout=5)  # nobody passes alone

    def work(number):
        meeting.wait()
        time.sleep(0.001 * (3 - number % 3))
        return number

    assert list(in_order(work, range(9), workers=3, ahead=9)) == list(range(9))


def test_leaving_early_leaves_no_thread_behind(tmp_path):
    before = threading.active_count()
    stream = batches(coloured(tmp_path, 30) * 50, PLAN, batch_size=4, workers=3)
    next(stream)
    stream.close()
    assert threading.active_count() == before


def test_what_is_no_bad_picture_stops_everything(monkeypatch):
    def missing(*_, **__):
        raise EnvironmentProblem("tifffile is not installed.")

    monkeypatch.setattr(loader, "read", missing)
    with pytest.raises(EnvironmentProblem):
        list(batches([b"x"] * 9, PLAN, batch_size=2))


def test_errors_do_not_keep_the_bytes_of_their_files_alive():
    gc.collect()
    tracemalloc.start()
    errors = [
        file.error
        for batch in batches((os.urandom(100_000) for _ in range(200)), PLAN, batch_size=4)
        for file in batch.files
    ]
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(errors) == 200
    assert kept < 2_000_000  # 20 MB went through


@pytest.mark.chaos
def test_memory_is_flat_over_a_hundred_thousand_files(tmp_path):
    paths = coloured(tmp_path, 50, bad=(7,))
    plan = Preprocess(size=(32, 32), resize=(32, 32))

    def resident():
        with open("/proc/self/statm") as file:  # noqa: PTH123
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    counts, measured = {"good": 0, "bad": 0}, []
    for batch in batches(itertools.islice(itertools.cycle(paths), 100_000), plan, batch_size=64, workers=2):
        counts["good"] += len(batch.good)
        counts["bad"] += len(batch.files) - len(batch.good)
        measured.append(resident())
    assert counts == {"good": 98_000, "bad": 2_000}
    growth = np.mean(measured[-100:]) - np.mean(measured[200:300])
    assert growth < 3e6, f"resident memory grew by {growth / 1e6:.2f} MB over the last 80,000 files"
