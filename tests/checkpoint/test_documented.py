"""Does docs/formats.md say what the code does?"""

from pathlib import Path

from vitrail.checkpoint.capacity import FEATURES, HOLDS
from vitrail.checkpoint.custom import rules_from_text
from vitrail.checkpoint.formats import FORMATS
from vitrail.checkpoint.native import ALONE, LAYERS
from vitrail.checkpoint.transforms import TRANSFORMS
from vitrail.checkpoint.writing import NAMES

PAGE = (Path(__file__).parents[2] / "docs" / "formats.md").read_text()


def between(mark):
    return PAGE.split(f"<!-- {mark} -->")[1]


def test_the_table_of_what_each_format_holds_is_the_one_the_code_goes_by():
    formats = ("google", "timm", "torchvision", "jeonsworld")
    rows = [
        f"| {feature.what} | yes | {' | '.join('yes' if name in HOLDS[form] else '-' for form in formats)} | "
        f"{feature.done or '-'} |"
        for name, feature in FEATURES.items()
    ]
    assert between("capacity").strip().splitlines()[2:] == rows


def test_every_transform_key_and_format_is_on_the_page():
    assert all(f"| `{name}` | {transform.shape or 'any'} |" in PAGE for name, transform in TRANSFORMS.items())
    assert between("keys").strip("\n`").split("\n")[1:] == [*(f"{name}.weight, .bias" for name in LAYERS), *ALONE]
    assert all(f"`{name}`" in PAGE for name in NAMES)
    for form in FORMATS.values():
        assert all(f"`{name}`" in PAGE for name in form.conventions if name != "initializer")
        assert all(f"`{name}`" in PAGE for name in form.stem if name != "standardization_eps")


def test_the_example_of_ones_own_rules_is_valid():
    text = PAGE.split("```toml\n")[1].split("```")[0]
    assert rules_from_text(text).table.name == "my ViT"
