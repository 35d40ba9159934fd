"""Does every layout of DATA become the same classes, in the same order, with nothing lost and nothing guessed?"""

import csv
import io
import os
import random
import sys
import tarfile
import unicodedata

import pytest
from images.drawn import encoded, quadrants

from vitrail.errors import DataError, EnvironmentProblem
from vitrail.images import manifest, shards
from vitrail.images.decode import decode
from vitrail.images.folder import read_data
from vitrail.images.labels import match_labels
from vitrail.images.listing import list_inputs
from vitrail.images.reading import BadPicture

PICTURE = encoded(quadrants())


def fill(root, *names):
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(PICTURE)
    return root


def pack(path, files, **options):
    with tarfile.open(path, "w", **options) as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return path


def told(call, *arguments, **options):
    with pytest.raises(DataError) as caught:
        call(*arguments, **options)
    return str(caught.value)


# layouts


def test_class_folders(tmp_path):
    data = read_data(
        fill(tmp_path, "dog/2.jpg", "dog/1.png", "cat/deep/3.jpg", "cat/.hidden", "README.md", "__MACOSX/x")
    )
    assert data.classes == ("cat", "dog")
    assert [(os.path.relpath(str(s.item), tmp_path), s.label) for s in data.splits["all"]] == [
        ("cat/deep/3.jpg", 0),
        ("dog/1.png", 1),
        ("dog/2.jpg", 1),
    ]
    assert data.skipped == {"hidden": 1, "outside a class folder": 1, "system": 1}
    assert data.counts() == {"cat": {"all": 1}, "dog": {"all": 2}}


def test_split_folders(tmp_path):
    data = read_data(fill(tmp_path, "train/b/1.jpg", "train/a/1.jpg", "test/a/2.jpg", "val/b/3.jpg", "val/b/4.jpg"))
    assert data.classes == ("a", "b")
    assert list(data.splits) == ["train", "val", "test"]
    assert data.counts() == {"a": {"train": 1, "val": 0, "test": 1}, "b": {"train": 1, "val": 2, "test": 0}}


def test_only_a_test_split_is_a_layout_too(tmp_path):
    assert list(read_data(fill(tmp_path, "test/a/1.jpg", "test/b/1.jpg")).splits) == ["test"]


def test_a_train_can_be_a_class(tmp_path):
    assert read_data(fill(tmp_path, "train/1.jpg", "bus/1.jpg")).classes == ("bus", "train")
    assert read_data(fill(tmp_path / "x", "train/1.jpg", "test/1.jpg")).classes == ("test", "train")


def test_a_link_back_into_the_data_gives_no_picture_to_another_class(tmp_path):
    data, outside = fill(tmp_path / "data", "train/a/1.jpg", "train/b/2.jpg", "val/a/3.jpg"), tmp_path / "outside"
    fill(outside, "4.jpg")
    for name, target in (("up", data), ("sideways", data / "train" / "b"), ("out", outside)):
        (data / "train" / "a" / name).symlink_to(target)
    read = read_data(data)
    assert read.counts() == {"a": {"train": 2, "val": 1}, "b": {"train": 1, "val": 0}}
    assert read.skipped == {"link to a folder listed already": 2}
    (data / "train" / "c").symlink_to(data / "train" / "a")  # a class by another name, as someone meant it
    assert read_data(data).counts()["c"] == {"train": 2, "val": 0}


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_manifest(tmp_path, suffix):
    fill(tmp_path, "b.jpg", "a, quoted.jpg")
    rows = [("b.jpg", "dog", "train"), ("a, quoted.jpg", "10", "val"), (str(tmp_path / "b.jpg"), "10", "train")]
    path = tmp_path / f"list.{suffix}"
    if suffix == "csv":
        with path.open("w", encoding="utf-8-sig", newline="") as file:
            csv.writer(file).writerows([("path", " label", "split"), *rows])
    else:
        parquet = pytest.importorskip("pyarrow.parquet")
        arrow = pytest.importorskip("pyarrow")
        parquet.write_table(
            arrow.table(dict(zip(("path", "label", "split"), zip(*rows, strict=True), strict=True))), path
        )
    data = read_data(path)
    assert data.classes == ("10", "dog")
    assert data.counts() == {"10": {"train": 1, "val": 1}, "dog": {"train": 1, "val": 0}}
    assert decode(data.splits["val"][0].item).width == 48


def test_a_parquet_file_without_its_library_says_how_to_get_it(tmp_path, monkeypatch):
    (tmp_path / "x.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(EnvironmentProblem, match=r"vitrail\[parquet\]"):
        read_data(tmp_path / "x.parquet")


def test_shards_with_folders_inside(tmp_path):
    path = pack(tmp_path / "pets.tar", {"./train/dog/1.png": PICTURE, "train/cat/2.png": PICTURE, "README": b"x"})
    data = read_data(path)
    assert data.classes == ("cat", "dog")
    assert list(data.splits) == ["train"]
    assert [str(sample.item) for sample in data.splits["train"]] == [
        f"{path}/train/dog/1.png",
        f"{path}/train/cat/2.png",
    ]
    assert decode(data.splits["train"][1].item).width == 48
    assert data.skipped == {"outside a class folder": 1}
    wrapped = pack(tmp_path / "w.tar", {"pets/cat/1.png": PICTURE, "pets/dog/1.png": PICTURE})
    assert read_data(wrapped).classes == ("cat", "dog")


def test_webdataset_shards_keep_their_order_and_read_labels_beside_the_pictures(tmp_path):
    for number in range(3):
        files = {}
        for index in (3, 1, 2):
            files |= {
                f"{number}{index}.png": PICTURE,
                f"{number}{index}.cls": b"%d\n" % (index * 5),
                f"{number}{index}.json": b"{}",
            }
        pack(tmp_path / f"train-00{number}.tar", files)
    pack(tmp_path / "val-000.tar", {"x.png": PICTURE, "x.cls": b"5"})
    data = read_data(tmp_path)
    assert data.classes == ("10", "15", "5")
    assert [sample.item.name for sample in data.splits["train"]] == [f"{n}{i}.png" for n in range(3) for i in (3, 1, 2)]
    assert [data.classes[sample.label] for sample in data.splits["train"]][:3] == ["15", "5", "10"]
    assert len(data.splits["val"]) == 1
    assert data.skipped == {"label or note beside a picture": 19}
    assert read_data(f"{tmp_path}/train-*.tar").splits.keys() == {"train"}


# the names of classes


def random_names(chance):
    letters = "aAbB01 29_-éÉßøİı日本Ω" + unicodedata.normalize("NFD", "é") + "'\"()&,;=%#@!~"
    names = {
        "".join(chance.choices(letters, k=chance.randint(1, 8))).strip(" ") or "x" for _ in range(chance.randint(2, 9))
    }
    return {name for name in names if not name.startswith((".", "~"))} | {"1", "10", "2", "Z", "a"}


def test_two_hundred_sets_of_class_names_keep_their_names_and_order(tmp_path):
    chance = random.Random(5)
    for number in range(200):
        names = random_names(chance)
        data = read_data(fill(tmp_path / str(number), *(f"{name}/1.png" for name in names)))
        assert data.classes == tuple(sorted(names))
        for sample in data.splits["all"]:
            assert os.path.basename(os.path.dirname(str(sample.item))) == data.classes[sample.label]  # noqa: PTH119, PTH120
        shuffled = chance.sample(sorted(names), len(names))
        assert [shuffled[place] for place in match_labels(data.classes, shuffled)] == list(data.classes)
        changed = chance.choice(shuffled)
        assert "disagree" in told(match_labels, data.classes, [name for name in shuffled if name != changed])
        assert "disagree" in told(match_labels, data.classes, [*shuffled, changed + "x"])


def test_an_accent_stored_in_two_parts_is_the_same_accent_unless_both_are_classes():
    one, two = "caf\u00e9", "cafe\u0301"
    assert match_labels([two, "tea"], ["tea", one]) == [1, 0]
    assert match_labels([one], [two]) == [0]
    assert match_labels([one, two], [two, one]) == [1, 0]
    assert "two classes of the data" in told(match_labels, [one, two], [one, "x"], remap=True)


def test_case_and_spaces_are_not_the_same():
    for other in ("Cat", "cat ", "c at"):
        assert "disagree" in told(match_labels, [other], ["cat"])


def test_a_folder_that_disagrees_is_refused_with_both_sides_named():
    message = told(match_labels, ["cat", "dgo"], ["cat", "dog"])
    assert "only in the data: 'dgo'; only in the model: 'dog'" in message
    assert "Did you mean dog?" in message
    assert "--remap" in message
    assert "and 95 more" in told(match_labels, [f"n{number}" for number in range(100)], ["x"])


def test_remap_keeps_what_both_know_or_renames():
    assert match_labels(["cat", "emu"], ["dog", "cat"], remap=True) == [1, None]
    assert match_labels(["katze", "hund"], ["dog", "cat"], remap={"katze": "cat", "hund": "dog"}) == [1, 0]
    assert "disagree" in told(match_labels, ["emu"], ["dog", "cat"], remap=True)
    assert "disagree" in told(match_labels, ["katze", "emu"], ["dog", "cat"], remap={"katze": "cat"})
    assert "two classes" in told(match_labels, ["katze", "kater"], ["cat"], remap={"katze": "cat", "kater": "cat"})


def test_a_class_name_that_is_not_text_is_refused(tmp_path):
    fill(tmp_path, os.fsdecode(b"caf\xe9/1.png"))
    assert "not valid UTF-8" in told(read_data, tmp_path)


# what is refused


def test_an_empty_class_is_named(tmp_path):
    fill(tmp_path, "cat/1.jpg", "dog/.gitkeep")
    assert f"{tmp_path / 'dog'} is empty" in told(read_data, tmp_path)
    fill(tmp_path / "s", "train/cat/1.jpg", "val/cat/1.jpg")
    (tmp_path / "s" / "val" / "emu").mkdir()
    assert "emu is empty" in told(read_data, tmp_path / "s")


def test_a_class_that_is_never_learnt_is_named(tmp_path):
    fill(tmp_path, "train/cat/1.jpg", "val/emu/1.jpg")
    assert "'emu' is in val and not in train" in told(read_data, tmp_path)


def test_the_folder_above_is_recognised(tmp_path):
    fill(tmp_path, "pets/cat/1.jpg", "pets/dog/1.jpg")
    assert f"Give {tmp_path / 'pets'}" in told(read_data, tmp_path)


def test_other_mistakes_say_what_was_found(tmp_path):
    fill(tmp_path, "one.jpg")
    assert "not there" in told(read_data, tmp_path / "nowhere")
    assert "no labelled pictures" in told(read_data, tmp_path)
    assert "neither a folder" in told(read_data, tmp_path / "one.jpg")
    files = {
        "no-column.csv": ("file,label\na,b\n", "no column 'path'; its columns are 'file', 'label'"),
        "near.csv": ("paht,label\na,b\n", "Did you mean paht?"),
        "blank.csv": ("path,label\na,b\nc,\n", "row 3: no label"),
        "split.csv": ("path,label,split\na,b,trian\n", "the split is 'trian'"),
        "mixed.csv": ("path,label,split\na,b,train\nc,b,\n", "is in no split, others are"),
        "empty.csv": ("", "no column 'path'; its columns are none"),
        "header.csv": ("path,label\n", "no labelled pictures"),
        "latin.csv": ("path,label\ncaf\udce9,x\n", "cannot be read"),
        "long.csv": ("path,label\n" + "x" * 200_000 + ",x\n", "cannot be read"),
        "bad.tar": ("this is no tar", "cannot be read as a tar"),
        "bad.parquet": ("this is no parquet", "cannot be read"),
    }
    for name, (text, message) in files.items():
        if name.endswith(".parquet") and not manifest_library():
            continue
        (tmp_path / name).write_text(text, encoding="utf-8", errors="surrogateescape")
        assert message in told(read_data, tmp_path / name), name


def manifest_library():
    try:
        return manifest.extra("pyarrow", "")
    except EnvironmentProblem:
        return None


# tar files that mean harm


def test_a_tar_is_never_unpacked_and_names_that_would_leave_it_are_skipped(tmp_path):
    path = tmp_path / "t.tar"
    with tarfile.open(path, "w") as tar:
        for name in (
            "../../evil.png",
            "/etc/evil.png",
            "a/../../b.png",
            "good/1.png",
            "__MACOSX/good/1.png",
            "good/.x",
        ):
            entry = tarfile.TarInfo(name)
            entry.size = len(PICTURE)
            tar.addfile(entry, io.BytesIO(PICTURE))
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE):
            entry = tarfile.TarInfo("good/link")
            entry.type, entry.linkname = kind, "/etc/passwd"
            tar.addfile(entry)
    members, skipped = shards.index(path)
    assert [member.name for member in members] == ["good/1.png"]
    assert skipped == {"unsafe name": 3, "system": 1, "hidden": 1, "no regular file": 4}
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["t.tar"]


def test_a_tar_that_sends_its_reader_in_circles_is_refused(tmp_path):
    """CVE-2025-8194: a negative size makes tarfile read the same entry for ever."""
    data = bytearray(pack(tmp_path / "t.tar", {"a/1.png": PICTURE, "a/2.png": PICTURE}).read_bytes())
    second = data.index(b"a/2.png")
    data[second + 124 : second + 136] = b"\xff" * 8 + (2**32 - 2048).to_bytes(4, "big")  # base 256: -2048
    total = sum(data[second : second + 148]) + 8 * 32 + sum(data[second + 156 : second + 512])
    data[second + 148 : second + 156] = b"%06o\0 " % total
    (tmp_path / "t.tar").write_bytes(data)
    assert "negative size" in told(shards.index, tmp_path / "t.tar")


def test_a_tar_cut_short_or_compressed_is_refused(tmp_path):
    path = pack(tmp_path / "t.tar", {f"a/{number}.png": PICTURE for number in range(9)})
    whole = path.read_bytes()
    path.write_bytes(whole[: len(PICTURE) + 700])
    assert "cannot be read as a tar" in told(shards.index, path)
    with tarfile.open(path, "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("x"))
    assert "gunzip" in told(shards.index, path)


def test_a_tar_that_changes_after_it_was_listed_gives_errors_and_no_other_picture(tmp_path):
    path = pack(tmp_path / "t.tar", {"a/1.png": PICTURE, "a/2.png": PICTURE, "a/3.png": b""})
    first, second, empty = list_inputs([path]).items
    assert (first.name, decode(first).width) == ("a/1.png", 48)
    path.write_bytes(path.read_bytes()[: second.offset + 10])
    for member, reason in ((second, "truncated"), (empty, "empty")):
        with pytest.raises(BadPicture) as caught:
            decode(member)
        assert caught.value.reason == reason
    path.unlink()
    with pytest.raises(BadPicture) as caught:
        decode(first)
    assert caught.value.reason == "unreadable"
