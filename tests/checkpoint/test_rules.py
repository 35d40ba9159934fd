"""Does every table read both ways, use each key once, and not care about order?"""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vitrail.checkpoint import rules, transforms
from vitrail.checkpoint.formats import FORMATS
from vitrail.checkpoint.rules import Key, Rule, Table, plan, translate, untranslate
from vitrail.checkpoint.transforms import TRANSFORMS, Sizes
from vitrail.errors import CheckpointError

from .tiny import CONFIGS, random_state

TABLES = [table for form in FORMATS.values() for table in form.tables]
SIZES = Sizes(head_dim=4, patch_size=(4, 2), num_channels=3, grid=(2, 3))


def numbered(*shape):
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_each_key_of_either_side_has_one_row(table):
    ours = [rule.ours for rule in table.rules]
    theirs = [key for rule in table.rules for key in rule.theirs]
    assert len(set(ours)) == len(ours)
    assert len(set(theirs)) == len(theirs)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_reading_what_was_written_gives_the_same_bits_and_uses_each_key_once(table):
    for name, config in CONFIGS.items():
        state, sizes = random_state(name), Sizes(head_dim=config.head_dim)
        prefix = table.prefixes[0]
        theirs, left = untranslate(table, state, prefix=prefix, sizes=sizes)
        shuffled = dict(sorted(theirs.items(), key=lambda item: hash(item[0])))
        back = translate(table, shuffled, prefix=prefix, sizes=sizes, expected=state)
        assert set(back.missing) == set(left), name
        assert set(back.state) | set(left) == set(state), name
        assert all(torch.equal(back.state[key], state[key]) for key in back.state), name
        assert sorted(back.used) == sorted(theirs), name
        assert not back.unused, name
        again, _ = untranslate(table, back.state, prefix=prefix, sizes=sizes)
        assert again.keys() == theirs.keys(), name
        assert all(torch.equal(again[key], theirs[key]) for key in theirs), name


SHAPES = {
    "same": (2, 3),
    "transpose": (2, 3),
    "hwio": (4, 2, 3, 5),
    "heads_in": (8, 2, 4),
    "heads_bias": (2, 4),
    "heads_out": (2, 4, 8),
    "channels": (1, 1, 1, 7),
    "token": (5,),
    "rows": (3, 5),
    "grid": (1, 2, 3, 5),
    "grid_channels_first": (1, 5, 2, 3),
    "patch_chw": (5, 24),
    "patch_hwc": (5, 24),
    "qkv_by_head": (24, 5),
    "swap_halves": (6, 5),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_each_transform_undoes_itself(name):
    x = numbered(*SHAPES[name])
    ours = transforms.read(name, x, SIZES)
    assert torch.equal(transforms.write(name, ours, SIZES), x)
    on_meta = transforms.read(name, x.to("meta"), SIZES)
    assert on_meta.shape == ours.shape


def test_transforms_do_what_their_names_say():
    kernel = numbered(8, 2, 4)  # D x heads x head_dim
    assert torch.equal(transforms.read("heads_in", kernel, SIZES)[4 + 1], kernel[:, 1, 1])
    conv = numbered(4, 2, 3, 5)
    assert transforms.read("hwio", conv, SIZES)[4, 2, 3, 1] == conv[3, 1, 2, 4]
    linear = numbered(5, 24)
    assert transforms.read("patch_chw", linear, SIZES)[1, 2, 3, 1] == linear[1, 2 * 8 + 3 * 2 + 1]
    assert transforms.read("patch_hwc", linear, SIZES)[1, 2, 3, 1] == linear[1, (3 * 2 + 1) * 3 + 2]
    packed = numbered(24, 5)  # two heads of four: q0 k0 v0 q1 k1 v1
    assert torch.equal(transforms.read("qkv_by_head", packed, SIZES)[4:8], packed[12:16])


def test_parts_that_lie_end_to_end_are_joined_without_a_copy():
    whole = torch.arange(24.0).view(6, 4)
    first, second, third = whole.split(2)
    found = transforms.joined((first, second, third))
    assert torch.equal(found, whole)
    assert found.data_ptr() == whole.data_ptr()
    for apart in ([second, first], [first, third], [first.clone(), second], [first[:, :2], second[:, :2]]):
        found = transforms.joined(apart)
        assert torch.equal(found, torch.cat(apart))
        assert found.data_ptr() != apart[0].data_ptr()


def test_a_transform_that_needs_a_size_says_which():
    with pytest.raises(CheckpointError, match="patch_size"):
        transforms.read("patch_chw", numbered(5, 24), Sizes())
    with pytest.raises(CheckpointError, match="No transform"):
        transforms.chain("transpoze")


@given(i=st.integers(0, 999), j=st.integers(0, 999))
def test_a_key_recognises_what_it_fills_in(i, j):
    key = Key.parse("~block{s+1}/unit{u}/conv", "params/")
    text = key.fill({"s": i, "u": j})
    assert text == f"params/block{i + 1}/unit{j}/conv"
    assert key.match(text) == {"s": i, "u": j}


@pytest.mark.parametrize("text", ["params/block0/unit1/conv", "block1/unit1/conv", "params/block01/unit1/conv", "x"])
def test_a_key_is_matched_whole_or_not_at_all(text):
    assert Key.parse("~block{s+1}/unit{u}/conv", "params/").match(text) is None


def test_a_stack_of_layers_is_read_row_by_row_and_written_as_one():
    table = Table(name="stacked", rules=(Rule(("q[{i}]", "kv[{i}]*2"), "blocks.{i}.qkv"),))
    theirs = {"q": numbered(3, 2), "kv": numbered(3, 4) + 100}
    read = translate(table, theirs)
    assert list(read.state) == ["blocks.0.qkv", "blocks.1.qkv", "blocks.2.qkv"]
    assert read.state["blocks.1.qkv"].tolist() == [2, 3, 104, 105, 106, 107]
    written, left = untranslate(table, read.state)
    assert not left
    assert all(torch.equal(written[key], theirs[key]) for key in theirs)


def test_what_is_absent_of_a_joined_weight_is_missing_not_guessed():
    table = Table(name="qkv", rules=(Rule(("q", "k", "v"), "qkv"),))
    read = translate(table, {"q": numbered(2, 2), "v": numbered(2, 2), "x": numbered(1)}, expected=["qkv", "norm"])
    assert read.state == {}
    assert set(read.missing) == {"qkv", "norm"}
    assert read.unused == ("x",)
    assert plan(table, {"q": numbered(2, 2), "v": numbered(2, 2)}).incomplete == {"qkv": ("k",)}


def test_two_rows_for_one_key_and_two_keys_for_one_row_are_refused():
    twice = Table(name="t", rules=(Rule(("a{i}",), "x{i}"), Rule(("a{j}",), "y{j}")))
    with pytest.raises(CheckpointError, match="claim the key 'a0'"):
        translate(twice, {"a0": numbered(1)})
    merged = Table(name="t", rules=(Rule(("a{i}.b{j}",), "x{i}"),))
    with pytest.raises(CheckpointError, match="both stand for 'x0'"):
        translate(merged, {"a0.b0": numbered(1), "a0.b1": numbered(1)})


def test_running_a_plan_lets_go_of_each_source_when_it_is_used_up():
    table = Table(name="t", rules=(Rule(("a",), "x"), Rule(("s[{i}]",), "y{i}")))
    tensors = {"a": numbered(2), "s": numbered(2, 2)}
    rules.plan(table, tensors).run(tensors, Sizes())
    assert tensors == {}
