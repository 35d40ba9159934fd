"""Do hostile files, and folders that change under our feet, cost a row and nothing else?"""

import json
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from images.drawn import encoded
from images.hostile import ANY, OK, everything, write_corpus
from PIL import Image

from vitrail.config import Preprocess
from vitrail.images.decode import Decoding
from vitrail.images.listing import list_inputs
from vitrail.images.loader import batches
from vitrail.images.reading import SERVING

TESTS = Path(__file__).parents[1]
PLAN = Preprocess(size=(32, 32), resize=36, center_crop=True)
SECONDS, MEGABYTES = 5.0, 400  # for one picture, under the limits for serving


def words(files):
    return {os.fspath(file.source): file.error.reason if file.error else "ok" for file in files}


def in_a_process_of_its_own(script, *arguments):
    """Lines of JSON from a script; a crash of a decoder would be its death, not ours."""
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, *map(str, arguments)],
        capture_output=True,
        env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


ROWS = """
import json, os, sys
from vitrail.config import Preprocess
from vitrail.images.listing import list_inputs
from vitrail.images.loader import batches
plan = Preprocess(size=(32, 32), resize=36, center_crop=True)
for batch in batches(list_inputs([sys.argv[1]]).items, plan, batch_size=8, workers=2):
    assert len(batch.pixels) == len(batch.good)
    for file in batch.files:
        word, row = (file.error.reason, file.error.row) if file.error else ("ok", "")
        print(json.dumps([os.fsencode(file.source).hex(), word, row]))
"""


def check_rows(folder, expected):
    rows = in_a_process_of_its_own(ROWS, folder)
    found = {os.path.relpath(os.fsdecode(bytes.fromhex(name)), folder): word for name, word, _ in rows}
    assert len(rows) == len(found) == len(expected)
    assert found.keys() == expected.keys()
    assert [bytes.fromhex(row[0]) for row in rows] == [
        os.fsencode(i) for i in sorted(map(str, list_inputs([folder]).items))
    ]
    wrong = {name: word for name, word in found.items() if word not in expected[name]}
    assert not wrong
    assert all("\n" not in row[2] and row[2].encode() for row in rows if row[2])  # fit for a line of a table
    return found


def test_every_hostile_file_is_one_row_with_the_right_word(tmp_path):
    """All kinds of trouble once, and two mutants of each format; the chaos tests take more of them."""
    expected = write_corpus(tmp_path, mutants=2)
    assert len(expected) >= 250
    found = check_rows(tmp_path, expected)
    assert sum(word == "ok" for word in found.values()) > 100


@pytest.mark.chaos
def test_a_thousand_mutants_more(tmp_path):
    check_rows(tmp_path, write_corpus(tmp_path, mutants=80))


MEASURED = """
import json, os, sys, time
sys.path.insert(0, sys.argv[2])
from vitrail.config import Preprocess
from vitrail.images.decode import Decoding
from vitrail.images.listing import list_inputs
from vitrail.images.reading import SERVING, BadPicture
from vitrail.images.transforms import read
plan = Preprocess(size=(224, 224), resize=256, center_crop=True)
def peak():
    lines = open("/proc/self/status").read().split("\\n")
    return {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines if line.startswith("Vm")}
for path in list_inputs([sys.argv[1]]).items:
    open("/proc/self/clear_refs", "w").write("5")  # forget the highest memory so far
    before, begun = peak()["VmRSS"], time.perf_counter()
    try:
        read(path, plan, options=Decoding(limits=SERVING))
        word = "ok"
    except BadPicture as error:
        word = error.reason
    print(json.dumps([repr(path), word, time.perf_counter() - begun, peak()["VmHWM"] - before]))
"""


@pytest.mark.chaos
def test_no_single_file_takes_long_or_much_memory(tmp_path):
    write_corpus(tmp_path, mutants=8, megapixels=63)
    rows = in_a_process_of_its_own(MEASURED, tmp_path, TESTS)
    slowest, largest = max(rows, key=lambda row: row[2]), max(rows, key=lambda row: row[3])
    assert slowest[2] < SECONDS, slowest
    assert largest[3] < MEGABYTES, largest


MUTANTS = """
import importlib.util, json, random, sys
import numpy as np
from images.drawn import encoded, npy, png16
from images.hostile import FORMATS, mutate, texture
from vitrail.images.decode import Decoding, decode
from vitrail.images.reading import SERVING, BadPicture
chance, words = random.Random(int(sys.argv[1])), {}
wholes = [encoded(texture(24, 18, seed), kind, **options) for seed in range(2) for kind, options in FORMATS.values()]
deep = np.random.default_rng(0).integers(0, 65536, (12, 9, 4)).astype(np.uint16)
wholes += [npy(deep), npy(deep[..., 0]), png16(deep), png16(deep[..., :3]), png16(deep[..., 0])]
wants = [{}, {}, {"channels": 1}, {"depth": 16}, {"channels": 4}, {"channels": 4, "depth": 16}]
wants = wants if importlib.util.find_spec("imagecodecs") and importlib.util.find_spec("tifffile") else wants[:3]
for number in range(int(sys.argv[2])):
    options = Decoding(limits=SERVING, truncated=("error", "load")[number % 2])
    try:
        decode(mutate(chance.choice(wholes), chance), options=options, **chance.choice(wants))
        word = "ok"
    except BadPicture as error:
        word = error.reason
    words[word] = words.get(word, 0) + 1
print(json.dumps(words))
"""


@pytest.mark.chaos
def test_tens_of_thousands_of_mutants_raise_nothing_but_bad_picture():
    """VITRAIL_MUTANTS and VITRAIL_SEED for longer runs."""
    count, seed = os.environ.get("VITRAIL_MUTANTS", "30000"), os.environ.get("VITRAIL_SEED", "1")
    (words,) = in_a_process_of_its_own(MUTANTS, seed, count)
    assert sum(words.values()) == int(count)
    assert words.keys() <= ANY


# folders that change while they are read


def fill(folder, count):
    """Picture number n has brightness n."""
    for number in range(count):
        (folder / f"{number:03}.png").write_bytes(encoded(Image.new("L", (30, 30), number % 256)))


def disturb(folder, stop, chance, count):
    """Delete, cut, replace, lock, and put pipes and links where pictures were."""

    def replace(path):
        other = path.with_suffix(".new")
        other.write_bytes(encoded(Image.new("L", (9, 9), int(path.stem) % 256), "BMP"))
        other.rename(path)

    def swap(path, make):
        path.unlink(missing_ok=True)
        make(path)

    deeds = [
        lambda path: path.unlink(missing_ok=True),
        lambda path: os.truncate(path, chance.randint(0, 60)),
        lambda path: path.chmod(0),
        replace,
        replace,
        lambda path: swap(path, os.mkfifo),
        lambda path: swap(path, lambda p: p.symlink_to(p)),
        lambda path: swap(path, lambda p: p.mkdir()),
    ]
    while not stop.is_set():
        try:
            chance.choice(deeds)(folder / f"{chance.randrange(count):03}.png")
        except OSError:
            continue  # two deeds met at one name
        time.sleep(0.0005)


@pytest.mark.parametrize(
    "seed", [0, pytest.param(1, marks=pytest.mark.chaos), pytest.param(2, marks=pytest.mark.chaos)]
)
def test_a_folder_that_changes_while_it_is_read_loses_no_row_and_mixes_no_names(tmp_path, seed):
    count, stop, chance = 400, threading.Event(), random.Random(seed)
    fill(tmp_path, count)
    listed = list_inputs([tmp_path])
    troublemaker = threading.Thread(target=disturb, args=(tmp_path, stop, chance, count), daemon=True)
    troublemaker.start()
    rows = []
    for batch in batches(listed.items, PLAN, batch_size=8, workers=2):
        rows += batch.files
        for pixels, file in zip(batch.pixels, batch.good, strict=True):
            assert set(pixels.ravel().tolist()) == {int(Path(file.source).stem) % 256}
        time.sleep(0.005)  # as long as a model would take
    stop.set()
    troublemaker.join(5)
    assert [row.source for row in rows] == list(listed.items)
    found = set(words(rows).values())
    assert "ok" in found
    assert found & {"missing", "not_a_file", "symlink_loop", "truncated", "empty"}


@pytest.mark.chaos
def test_no_file_of_a_folder_changes_by_a_byte(tmp_path):
    write_corpus(tmp_path, mutants=1)

    def tree():
        regular = [path for path in sorted(tmp_path.rglob("*")) if path.is_file() and path.stat().st_size < 10**9]
        return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in regular if not path.is_symlink()}

    before = tree()
    assert sum(len(batch.files) for batch in batches(list_inputs([tmp_path]).items, PLAN, batch_size=16)) > 250
    for options in (
        Decoding(limits=SERVING, truncated="load"),
        Decoding(profiles=False, background="black", scaled=True),
    ):
        list(batches(list_inputs([tmp_path]).items, PLAN, batch_size=16, options=options))
    assert tree() == before


@pytest.mark.chaos
def test_what_is_readable_does_not_depend_on_how_many_threads_read():
    sources = [content for _, content, _ in everything(3)]
    once = [
        (file.error and file.error.reason, file.width)
        for b in batches(sources, PLAN, batch_size=8, workers=1)
        for file in b.files
    ]
    pixels = np.concatenate([batch.pixels for batch in batches(sources, PLAN, batch_size=8, workers=1)])
    again = list(batches(sources, PLAN, batch_size=8, workers=4))
    assert once == [(file.error and file.error.reason, file.width) for batch in again for file in batch.files]
    assert np.array_equal(pixels, np.concatenate([batch.pixels for batch in again]))
    assert OK < ANY
