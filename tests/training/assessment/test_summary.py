"""What an evaluation says in sentences, of figures made by hand."""

from longtail.training.assessment.summary import Summary, summarise
from longtail.training.calibration.thresholds import ThresholdF1
from longtail.training.evaluation.by_frequency import Evaluation, SubsetMetrics

OURS = ("ensemble", "sparse", "names")


def evaluation(precision: dict[str, float], *, ks=(1, 3, 5, 10), **bins: float) -> Evaluation:
    """Ten documents with 40 labels; by scorer its precision at each k, by bin the recall."""

    def subset(values):
        return SubsetMetrics(4, 4, 10 if values else 0, 40, values)

    most = ks[-1]
    scorers = {
        name: {
            "all": subset({f"P@{k}": p for k in ks} | {f"R@{most}": 0.71}),
            **{each: subset({f"R@{most}": bins[each]} if each in bins else {}) for each in "01"},
        }
        for name, p in precision.items()
    }
    return Evaluation(ks, 10, 0, 4, 100, scorers)


def summary(found: Evaluation, **thresholds: ThresholdF1) -> Summary:
    return summarise(found, OURS, "ensemble", "it won on dev", thresholds)


def test_sentences_say_how_many_are_right_how_rare_labels_fare_and_where_to_cut():
    rare = {"1": 0.46, "0": 0.49}
    found = summary(
        evaluation({"ensemble": 0.56, "sparse": 0.5, "30-NN": 0.3}, **rare),
        ensemble=ThresholdF1(0.342, 0.67, 0.708, 0.641),
    )
    few, all_and_rare, cut, default = found.sentences
    assert few == "Of five labels suggested by ensemble, 2.8 are right; a document carries 4.0."
    assert (
        "The first ten hold 71 % of a document's labels, 46 % of labels seen once" in all_and_rare
    )
    assert all_and_rare.endswith("and 49 % of labels never seen in training.")
    assert "0.34" in cut and "71 % of the labels above it are right" in cut and "64 %" in cut
    assert default == "ensemble, the default, has the highest P@5 of all scorers, 56.0 %."
