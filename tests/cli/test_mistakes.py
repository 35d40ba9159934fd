"""Mistakes as people make them, over every verb: the right exit code, at most three lines, and the way out in them."""

import shlex
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import vitrail
from vitrail.cli import COMMANDS, main

USAGE, DATA, CHECKPOINT, ENVIRONMENT = 2, 3, 4, 5

# what was typed: (exit code, what the answer must say)
MISTAKES: dict[str, tuple[int, str]] = {
    # the command itself
    "trian pets": (USAGE, "Did you mean train"),
    "Predict model cat.jpg": (USAGE, "Did you mean predict"),
    "--verson": (USAGE, "--version"),
    "--json": (USAGE, "vitrail --help"),
    # trace: names and settings of a model
    "trace b/16": (USAGE, "Did you mean B/16?"),
    "trace B16": (USAGE, "Did you mean B/16?"),
    "trace resnet50": (USAGE, "vitrail models"),
    "trace R50+B/17": (USAGE, "R50+B/16"),
    "trace vit_base_patch16_gap_224": (USAGE, "vit_base_patch16_224"),
    "trace B/17": (USAGE, "221 or 238"),
    "trace B/16 --set model.image_size=225": (USAGE, "224 or 240"),
    "trace B/16 --set model.image_size=[224,225]": (USAGE, "a height of 224 and a width of 224 or 240"),
    "trace B/16 --set model.image_sise=224": (USAGE, "model.image_size"),
    "trace B/16 --set image_size=224": (USAGE, "Did you mean model.image_size?"),
    "trace B/16 --set model.image_size": (USAGE, "key=value"),
    "trace B/16 --set model.num_attention_heads=7": (USAGE, "6, 8 heads"),
    "trace B/16 --set model.hidden_act=gleu": (USAGE, "Did you mean gelu?"),
    "trace B/16 --set model.hidden_dropout_prob=2": (USAGE, "below 1"),
    "trace B/16 --set model.class_token=perhaps": (USAGE, "true or false"),
    "trace B/16 --set model.hidden_size=big": (USAGE, "a whole number"),
    "trace B/16 --set model.pooling=map --set model.class_token=false --set model.pooling=token": (USAGE, "'mean'"),
    "trace B/16 --set model.kept_heads=[[0]]": (USAGE, "one list per layer"),
    "trace B/16 --set model.position=rotary --set model.head_dim=6": (USAGE, "a multiple of 4"),
    "trace R50+B/16 --set model.resnet.width=48": (USAGE, "resnet.width=64"),
    "trace R50+B/16 --set model.resnet.widht=64": (USAGE, "Did you mean model.resnet.width"),
    "trace B/16 --config missing.toml": (USAGE, "Check the path"),
    "trace B/16 --config broken.toml": (USAGE, "line 1"),
    "trace B/16 --config typo.toml": (USAGE, "--print-config"),
    "trace B/16 --batch 0": (USAGE, "x>=1"),
    "trace B/16 --batch many": (USAGE, "vitrail trace --help"),
    "trace B/16 --clases 10": (USAGE, "--classes"),
    "trace B/16 cat.jpg extra.jpg": (USAGE, "vitrail trace --help"),
    # the pictures and checkpoints it is given
    "trace mu/16 missing.jpg": (DATA, "missing.jpg"),
    "trace mu/16 notes.txt": (DATA, "JPEG"),
    "trace mu/16 torn.jpg": (DATA, "torn.jpg"),
    "trace missing.safetensors": (USAGE, "missing.safetensors"),
    "trace empty": (CHECKPOINT, "model.safetensors"),
    "trace cut": (CHECKPOINT, "fetch or copy it again"),
    # inspect and convert
    "inspect": (USAGE, "vitrail inspect --help"),
    "inspect missing": (CHECKPOINT, "Check the path"),
    "inspect empty": (CHECKPOINT, "model.safetensors"),
    "inspect weights.pth": (CHECKPOINT, "vitrail convert --from-pickle weights.pth"),
    "inspect broken.safetensors": (CHECKPOINT, "broken.safetensors"),
    "inspect broken.npz": (CHECKPOINT, "fetch or copy it again"),
    "inspect notes.txt": (CHECKPOINT, ".safetensors or .npz"),
    "inspect model --rules missing.toml": (USAGE, "Check the path"),
    "inspect model --set hidden_sise=3": (USAGE, "hidden_size"),
    "convert model": (USAGE, "TARGET"),
    "convert model out --to tim": (USAGE, "timm"),
    "convert model x.npz --to timm": (USAGE, "x.safetensors"),
    "convert missing out": (CHECKPOINT, "Check the path"),
    "convert weights.pth out": (CHECKPOINT, "--from-pickle"),
    # predict and embed
    "predict": (USAGE, "MODEL"),
    "predict model": (USAGE, "PATHS"),
    "predict missing cat.jpg": (CHECKPOINT, "Check the path"),
    "predict weights.pth cat.jpg": (CHECKPOINT, "--from-pickle"),
    "predict model empty": (DATA, "Check the path"),
    "predict model cat.jpg --top 0": (USAGE, "x>=1"),
    "predict model cat.jpg --out rows.txt": (USAGE, ".csv"),
    "predict model cat.jpg --out rows.csv": (USAGE, "Choose another --out"),
    "predict model cat.jpg --out no/such/folder/rows.csv": (ENVIRONMENT, "Choose another --out"),
    "predict model cat.jpg --engine tpu": (USAGE, "openvino"),
    "predict model cat.jpg --set data.worker=3": (USAGE, "data.workers"),
    "embed model": (USAGE, "PATHS"),
    "embed model cat.jpg --out x.foo": (USAGE, ".npy"),
    # evaluate and train
    "evaluate model": (USAGE, "DATA"),
    "evaluate model missing": (DATA, "Check the path"),
    "evaluate model empty": (DATA, "<class>"),
    "evaluate model hollow": (DATA, "hollow/dog"),
    "evaluate model columns.csv": (DATA, "path, label"),
    "evaluate model pets --rename cat": (USAGE, "DATA=MODEL"),
    "train missing": (DATA, "Check the path"),
    "train empty": (DATA, "<class>"),
    "train hollow": (DATA, "Add pictures, or remove the folder"),
    "train pets --epochs many": (USAGE, "vitrail train --help"),
    "train pets --set train.learning_rate=3": (USAGE, "Did you mean train.lr?"),
    "train pets --set train.lr=fast": (USAGE, "a number"),
    "train pets --set train.lr=-1": (USAGE, "0 or more"),
    "train pets --model X/16": (USAGE, "vitrail models"),
    "train pets --preset bets": (USAGE, "best"),
    "train pets --config typo.toml": (USAGE, "train"),
    "train --resume empty": (USAGE, "vitrail train DATA --out RUN"),
    # explain, figures, prune
    "explain model": (USAGE, "IMAGES"),
    "explain model cat.jpg --method relevence": (USAGE, "relevance"),
    "explain model cat.jpg --class tiger": (USAGE, "cat"),
    "explain model cat.jpg --format bmp": (USAGE, "png"),
    "figures model --format bmp": (USAGE, "png"),
    "figures missing": (USAGE, "vitrail models"),
    "prune model pets --score abblation": (USAGE, "ablation"),
    "prune model missing": (DATA, "missing"),
    # the small ones
    "recipe no-such": (USAGE, "vitrail recipe"),
    "data chekc pets": (USAGE, "vitrail data"),
    "data check missing": (DATA, "Check the path"),
    "models --jsn": (USAGE, "--json"),
    "completion powershell": (USAGE, "bash"),
    "demo --picture": (USAGE, "vitrail demo --help"),
    "doctor now": (USAGE, "vitrail doctor --help"),
}


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as it lies on a desk: a model, pictures, and things that are neither."""
    room = tmp_path_factory.mktemp("room")
    model = vitrail.create("mu/16", num_classes=2, image_size=32, seed=0)
    model.labels = ["cat", "dog"]
    vitrail.save(model, room / "model")
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 40, 3), dtype=np.uint8))
    for path in ("cat.jpg", "pets/cat/0.jpg", "pets/cat/1.jpg", "pets/dog/0.jpg", "pets/dog/1.jpg", "hollow/cat/0.jpg"):
        (room / path).parent.mkdir(parents=True, exist_ok=True)
        picture.save(room / path)
    for path in ("empty", "hollow/dog"):
        (room / path).mkdir()
    texts = {"notes.txt": "hello\n", "broken.toml": "[model\n", "typo.toml": "[trian]\nspeed = 1\n"}
    for name, text in (texts | {"columns.csv": "file,kind\na.jpg,x\n", "rows.csv": "mine\n"}).items():
        (room / name).write_text(text)
    whole = (room / "model" / "model.safetensors").read_bytes()
    shutil.copytree(room / "model", room / "cut")
    (room / "cut" / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    # The beginning of a pickle, of a zip, of nothing, and of a picture.
    starts = {"weights.pth": b"\x80\x02}q\x00.", "broken.npz": b"PK\x03\x04", "broken.safetensors": bytes(20)}
    for name, start in (starts | {"torn.jpg": (room / "cat.jpg").read_bytes()[:300]}).items():
        (room / name).write_bytes(start)
    return room


@pytest.mark.parametrize("typed", MISTAKES)
def test_a_mistake_is_answered_in_three_lines_with_the_way_out(
    typed: str, room: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(room.rglob("*"))
    monkeypatch.chdir(room)
    monkeypatch.setattr(sys, "argv", ["vitrail", *shlex.split(typed)])
    with pytest.raises(SystemExit) as stopped:
        main()
    shown = capsys.readouterr()
    code, way_out = MISTAKES[typed]
    assert (stopped.value.code, shown.out) == (code, ""), shown.err
    answer = shown.err[shown.err.find("vitrail: ") :]  # a file that was left out may have been told before
    assert way_out in shown.err
    assert 1 <= len(answer.strip().splitlines()) <= 3
    assert sorted(room.rglob("*")) == before  # and nothing was left behind


def test_no_verb_is_without_its_mistakes() -> None:
    assert {typed.split()[0] for typed in MISTAKES} >= set(COMMANDS)
    assert len(MISTAKES) >= 60
