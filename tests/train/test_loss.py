"""Is the loss that of torch, whatever the targets look like, and does every picture count once?"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from vitrail.errors import DataError
from vitrail.train.config import TrainConfig
from vitrail.train.loss import Loss, balanced, correct, loss_for

LOGITS = torch.randn(7, 5, generator=torch.Generator().manual_seed(0)) * 3
LABELS = torch.tensor([0, 4, 2, 2, 1, 3, 0])
ROWS = F.one_hot(LABELS, 5).float()
COUNTS = torch.tensor([50.0, 10.0, 20.0, 15.0, 5.0])


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_is_torchs_for_labels_and_for_shares(smoothing: float) -> None:
    loss = Loss("cross_entropy", smoothing)
    expected = F.cross_entropy(LOGITS, LABELS, label_smoothing=smoothing, reduction="sum")
    torch.testing.assert_close(loss(LOGITS, ROWS), expected)
    shares = torch.rand(7, 5, generator=torch.Generator().manual_seed(1)).softmax(1)
    expected = F.cross_entropy(LOGITS, shares, label_smoothing=smoothing, reduction="sum")
    torch.testing.assert_close(loss(LOGITS, shares), expected)


def test_several_labels_are_as_many_yes_or_no_questions() -> None:
    several = torch.tensor([[1, 0, 1, 0, 0]] * 7).float()
    expected = F.binary_cross_entropy_with_logits(LOGITS, several, reduction="none").mean(1).sum()
    torch.testing.assert_close(Loss("bce")(LOGITS, several), expected)
    assert Loss("bce", 0.2).smoothed(several)[0].tolist() == pytest.approx([0.9, 0.1, 0.9, 0.1, 0.1])


def test_class_weights_are_torchs_and_leave_the_average_picture_at_one() -> None:
    weights = balanced(COUNTS)
    loss = loss_for(TrainConfig(class_weights="balanced"), COUNTS)
    torch.testing.assert_close(
        loss(LOGITS, ROWS), F.cross_entropy(LOGITS, LABELS, weight=weights, reduction="none").sum()
    )
    assert (weights * COUNTS).sum() / COUNTS.sum() == pytest.approx(1.0)
    assert (weights * COUNTS).tolist() == pytest.approx([20.0] * 5), "every class has the same say"
    with pytest.raises(DataError, match="no training pictures"):
        balanced(torch.tensor([3.0, 0.0]))


def test_a_batch_in_portions_is_the_batch() -> None:
    loss = Loss("cross_entropy", 0.1, balanced(COUNTS))
    torch.testing.assert_close(loss(LOGITS[:3], ROWS[:3]) + loss(LOGITS[3:], ROWS[3:]), loss(LOGITS, ROWS))


def test_right_is_one_of_the_likeliest_classes() -> None:
    assert correct(LOGITS, ROWS, 5).all()
    top1 = correct(LOGITS, ROWS, 1)
    assert top1.tolist() == (LOGITS.argmax(1) == LABELS).tolist()
    assert correct(LOGITS[:, :3], ROWS[:, :3], 5)[0], "fewer classes than five are no error"
