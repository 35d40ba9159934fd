"""Are the measures those of scikit-learn, on answers with ties, missing classes and rare ones?"""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import binom, norm
from sklearn import metrics as peer
from sklearn.calibration import calibration_curve

from vitrail.evaluate import calibration
from vitrail.evaluate.answering import log_probabilities
from vitrail.evaluate.metrics import Answered, averages, measure, ranks

CLOSE = {"rel": 1e-9, "abs": 1e-12}


def answered(pictures=400, classes=6, seed=0, sharp=2.0, rounded=False):
    """Answers that are right more often than not; the last class never occurs."""
    random = np.random.default_rng(seed)
    label = random.integers(0, max(classes - 1, 2), pictures)
    logits = random.normal(0, 1, (pictures, classes)).astype(np.float32)
    logits[np.arange(pictures), label] += sharp
    logits = np.round(logits) if rounded else logits  # many ties
    truth = np.eye(classes, dtype=bool)[label]
    return Answered(log_probabilities(logits), truth, tuple(f"class {n}" for n in range(classes)))


def tagged(pictures=300, classes=5, seed=1):
    """Several classes to a picture, or none."""
    random = np.random.default_rng(seed)
    truth = random.random((pictures, classes)) < np.linspace(0.1, 0.6, classes)
    scores = (random.normal(0, 1.5, truth.shape) + 2 * truth - 1).astype(np.float32)
    return Answered(scores, truth, tuple("abcde"), several=True)


@pytest.mark.parametrize("rounded", [False, True])
@pytest.mark.parametrize("classes", [2, 3, 11])
def test_precision_recall_and_f1_are_those_of_scikit_learn_in_every_average(classes, rounded):
    given = answered(classes=classes, rounded=rounded)
    weights = np.random.default_rng(5).integers(0, 4, (3, len(given.scores))).astype(float)
    weights[0] = 1
    found = averages(given, weights)
    label = given.truth.argmax(1)
    for draw, weight in enumerate(weights):
        for average in ("macro", "micro", "weighted"):
            expected = peer.precision_recall_fscore_support(
                label, given.first, average=average, sample_weight=weight, zero_division=0
            )
            got = [found[f"{name}_{average}"][draw] for name in ("precision", "recall", "f1")]
            assert got == pytest.approx(expected[:3], **CLOSE)


@pytest.mark.parametrize("several", [False, True])
def test_areas_are_those_of_scikit_learn_also_weighted(several):
    given = tagged() if several else answered(classes=3, rounded=True)
    given = given if several else Answered(given.scores[:, :2], given.truth[:, :2], ("a", "b"))
    weights = np.random.default_rng(6).integers(0, 4, (3, len(given.scores))).astype(float)
    found = ranks(given, weights)
    for draw, weight in enumerate(weights):
        expected = peer.roc_auc_score(given.truth, given.scores, average="macro", sample_weight=weight)
        assert found["auroc_macro"][draw] == pytest.approx(expected, **CLOSE)
        if several:
            expected = peer.average_precision_score(given.truth, given.scores, average="macro", sample_weight=weight)
            assert found["map"][draw] == pytest.approx(expected, **CLOSE)


def test_one_against_the_rest_is_that_of_scikit_learn():
    given = answered(classes=4)
    occurring = given.truth.any(0)
    chances = calibration.probabilities(given.scores, several=False)
    expected = np.mean([peer.roc_auc_score(given.truth[:, c], chances[:, c]) for c in np.flatnonzero(occurring)])
    found = measure(given, draws=0)
    assert found.values["auroc_macro"].value == pytest.approx(expected, **CLOSE)
    for number, row in enumerate(found.classes):
        if occurring[number]:
            curve = peer.average_precision_score(given.truth[:, number], chances[:, number])
            assert row.average_precision == pytest.approx(curve, **CLOSE)
        else:
            assert row.auroc is row.average_precision is row.recall is None


def test_top_k_loss_and_brier_are_those_of_scikit_learn():
    given, binary = answered(classes=9), answered(classes=2)
    label, chances = given.truth.argmax(1), calibration.probabilities(given.scores, several=False)
    found = measure(given, draws=0).values
    assert found["top1"].value == pytest.approx(peer.accuracy_score(label, given.first))
    assert found["top5"].value == pytest.approx(peer.top_k_accuracy_score(label, chances, k=5, labels=range(9)))
    assert found["nll"].value == pytest.approx(peer.log_loss(label, chances, labels=range(9)), rel=1e-6)
    two = calibration.probabilities(binary.scores, several=False)[:, 1]
    half = peer.brier_score_loss(binary.truth[:, 1], two)
    assert measure(binary, draws=0).values["brier"].value == pytest.approx(
        2 * half, **CLOSE
    )  # summed over both classes


def test_the_tagged_kind_agrees_with_scikit_learn():
    given = tagged()
    found = measure(given, draws=0).values
    for average in ("macro", "micro"):
        expected = peer.f1_score(given.truth, given.yes, average=average, zero_division=0)
        assert found[f"f1_{average}"].value == pytest.approx(expected, **CLOSE)
    assert found["exact_match"].value == pytest.approx(peer.accuracy_score(given.truth, given.yes))
    chances = calibration.probabilities(given.scores, several=True)
    assert found["nll"].value == pytest.approx(
        np.mean([peer.log_loss(given.truth[:, c], chances[:, c]) for c in range(5)]), rel=1e-6
    )
    assert "top1" not in found


def test_the_confusion_is_that_of_scikit_learn():
    given = answered(classes=7, sharp=0.5)
    expected = peer.confusion_matrix(given.truth.argmax(1), given.first, labels=range(7))
    matrix = np.zeros((7, 7), int)
    for true, predicted, count in measure(given, draws=0).confusion:
        matrix[true, predicted] = count
    assert (matrix == expected).all()


def test_the_reliability_diagram_is_that_of_scikit_learn():
    given = answered(classes=3, pictures=2000)
    confidence, right = calibration.answers(calibration.probabilities(given.scores, False), given.truth, False)
    bins = [one for one in calibration.reliability(confidence, right) if one.answers]
    accuracy, said = calibration_curve(right.ravel(), confidence.ravel(), n_bins=calibration.BINS)
    assert [one.accuracy for one in bins] == pytest.approx(accuracy)
    assert [one.confidence for one in bins] == pytest.approx(said)
    by_hand = sum(one.answers * abs(one.accuracy - one.confidence) for one in bins) / 2000
    assert measure(given, draws=0).values["ece"].value == pytest.approx(by_hand)


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("heat", [0.5, 3.0])
def test_the_temperature_undoes_a_known_one_and_no_other_has_less_loss(several, heat):
    random = np.random.default_rng(3)
    logits = random.normal(0, 2, (20_000, 4)).astype(np.float32)
    chances = calibration.probabilities(logits, several)
    if several:
        truth = random.random(chances.shape) < chances
    else:
        truth = np.eye(4, dtype=bool)[(random.random((len(chances), 1)) > chances.cumsum(1)).sum(1).clip(max=3)]
    overdone = logits / heat if several else log_probabilities(logits / heat)
    found = calibration.temperature(overdone, truth, several)
    assert found == pytest.approx(1 / heat, rel=0.05)
    least = calibration.losses(overdone, truth, several, found).sum()
    for other in np.linspace(0.9, 1.1, 9) * found:
        assert calibration.losses(overdone, truth, several, float(other)).sum() >= least - 1e-6


def test_a_model_that_is_never_wrong_is_not_cooled_for_ever():
    label = np.arange(60) % 3
    logits = np.eye(3, dtype=np.float32)[label] * 40
    found = measure(Answered(log_probabilities(logits), np.eye(3, dtype=bool)[label], ("a", "b", "c")), draws=20)
    assert calibration.COLDEST <= found.temperature <= calibration.HOTTEST
    assert found.values["top1"].value == 1
    assert found.values["top1"].low == pytest.approx(60 / (60 + 1.959964**2), rel=1e-6)  # Wilson, in closed form
    assert all(np.isfinite(value.value) for value in found.values.values())


def test_intervals_hold_the_value_shrink_with_pictures_and_repeat_with_the_seed():
    few, many = answered(pictures=200), answered(pictures=3200)
    first, second = measure(few, draws=300).values, measure(many, draws=300).values
    assert first == measure(few, draws=300).values
    assert first != measure(few, draws=300, seed=1).values
    for name in ("f1_macro", "nll", "ece", "auroc_macro", "top1"):
        assert first[name].low <= first[name].value <= first[name].high
        assert 0.1 < (second[name].high - second[name].low) / (first[name].high - first[name].low) < 0.6, name


@pytest.mark.parametrize("name", ["recall_micro", "top1"])  # the drawn interval, and Wilson's
def test_the_interval_of_an_accuracy_covers_the_truth_as_often_as_it_says(name):
    # Right is a normal logit with mean 1 above two with mean 0: the integral is 0.6337.
    truth = quad(lambda x: norm.pdf(x - 1) * norm.cdf(x) ** 2, -np.inf, np.inf)[0]
    trials, inside = 200, 0
    for seed in range(trials):
        value = measure(answered(pictures=120, classes=3, sharp=1.0, seed=seed), draws=200).values[name]
        inside += value.low <= truth <= value.high
    low, high = binom.interval(0.999, trials, 0.95)  # so often is an interval of 95% right in so many trials
    assert low <= inside <= high


def test_one_picture_and_one_class_are_measured_without_a_warning():
    alone = Answered(np.zeros((1, 1), np.float32), np.ones((1, 1), bool), ("only",))
    found = measure(alone, draws=10)
    assert found.values["top1"].value == 1
    assert found.values["auroc_macro"].value is None
    assert found.temperature is None
