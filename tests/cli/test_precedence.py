"""Environment over --set over --config over the rest, as --print-config shows it, for every verb that has settings."""

import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import vitrail
from vitrail.cli import main

OF_MODELS = ("model.hidden_dropout_prob", "0.2", "0.3", "0.4")
OF_ENGINES = ("engine.batch_size", "2", "3", "4")
# what is typed: the setting, and what a file, --set and the environment make of it
VERBS = {
    "trace model": OF_MODELS,
    "explain model cat.jpg": OF_MODELS,
    "figures model": OF_MODELS,
    "prune model pets": OF_MODELS,
    "evaluate model pets": OF_ENGINES,
    "predict model cat.jpg": OF_ENGINES,
    "embed model cat.jpg": OF_ENGINES,
    "train pets --model mu/16": ("train.batch_size", "2", "3", "4"),
}


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model and pictures of two kinds."""
    room = tmp_path_factory.mktemp("room")
    vitrail.save(vitrail.create("mu/16", num_classes=2, image_size=32, seed=0), room / "model")
    picture = Image.fromarray(np.zeros((40, 40, 3), np.uint8))
    for path in ("cat.jpg", *(f"pets/{kind}/{number}.jpg" for kind in ("cat", "dog") for number in range(4))):
        (room / path).parent.mkdir(parents=True, exist_ok=True)
        picture.save(room / path)
    return room


@pytest.mark.parametrize("typed", VERBS)
def test_the_stronger_way_of_saying_it_wins_and_is_named(
    typed: str, room: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def shown(*options: str) -> str:
        monkeypatch.setattr(sys, "argv", ["vitrail", *shlex.split(typed), *options, "--print-config"])
        with pytest.raises(SystemExit) as stopped:
            main()
        answer = capsys.readouterr()
        assert stopped.value.code == 0, answer.err
        return " ".join(next(line for line in answer.out.splitlines() if line.startswith(f"{key} ")).split()[1:])

    key, of_file, of_set, of_environment = VERBS[typed]
    section, _, field = key.partition(".")
    (room / "mine.toml").write_text(f"[{section}]\n{field} = {of_file}\n")
    monkeypatch.chdir(room)
    assert shown("--config", "mine.toml") == f"{of_file} --config mine.toml"
    both = ("--config", "mine.toml", "--set", f"{key}={of_set}")
    assert shown(*both) == f"{of_set} --set {key}={of_set}"
    variable = "VITRAIL_" + key.upper().replace(".", "_")
    monkeypatch.setenv(variable, of_environment)
    assert shown(*both) == f"{of_environment} environment {variable}"
