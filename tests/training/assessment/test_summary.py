"""What an evaluation says in sentences, of figures made by hand."""

from dataclasses import replace

from longtail.training.assessment.summary import Summary, summarise
from longtail.training.calibration.thresholds import ThresholdF1
from longtail.training.evaluation.by_frequency import Evaluation, SubsetMetrics

OURS = ("ensemble", "sparse", "names")


def evaluation(precision: dict[str, float], *, ks=(1, 3, 5, 10), **bins: float) -> Evaluation:
    """50 documents with 200 labels; by scorer its precision at each k, by bin the recall."""

    def subset(values, size=50):
        return SubsetMetrics(4, 4, size if values else 0, 4 * size, values)

    most = ks[-1]
    scorers = {
        name: {
            "all": subset({f"P@{k}": p for k in ks} | {f"R@{most}": 0.71}),
            **{each: subset({f"R@{most}": bins[each]} if each in bins else {}) for each in "01"},
        }
        for name, p in precision.items()
    }
    return Evaluation(ks, 50, 0, 4, 100, scorers)


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


def with_few(found: Evaluation, **sizes: int) -> Evaluation:
    """The evaluation with fewer documents in some subsets; "all" are those of the whole."""
    scorers = {
        name: {
            x: replace(y, num_documents=sizes.get(x, 50), num_occurrences=4 * sizes.get(x, 50))
            for x, y in subsets.items()
        }
        for name, subsets in found.scorers.items()
    }
    return replace(found, scorers=scorers, num_documents=sizes.get("all", 50))


def test_a_share_of_fewer_than_fifty_is_printed_with_their_number():
    found = evaluation({"ensemble": 0.56, "sparse": 0.6}, **{"1": 0.87, "0": 0.5})
    threshold = {"ensemble": ThresholdF1(0.3, 0.6, 0.8, 0.25)}
    some = summary(with_few(found, **{"1": 15, "0": 1}), **threshold)
    assert (
        "71 % of a document's labels, 87 % of labels seen once in training (15 documents) and"
        in (some.text)
    )
    assert "50 % of labels never seen in training (1 document)." in some.text
    assert some.cells[0][-2:] == ["R@10, seen once (15 documents)", "R@10, never seen (1 document)"]
    assert "(" not in summary(found, **threshold).text
    few = summary(with_few(found, all=12), **threshold).text
    assert "71 % of a document's labels (12 documents)" in few
    assert "80 % of the labels above it (15 labels) are right" in few  # 0.25 * 48 / 0.8
    assert "25 % of all labels (48 labels) are found" in few
    assert "against 56.0 % (12 documents);" in few


def test_the_summary_names_each_language_with_its_documents():
    parts = {"de": evaluation({"ensemble": 0.599}), "en": evaluation({"ensemble": 0.447})}
    whole = evaluation({"ensemble": 0.5})
    said = summarise(whole, OURS, "ensemble", "", languages=parts).sentences
    expected = "P@1 by language of the document: 59.9 % of 50 in German, 44.7 % of 50 in English."
    assert expected in said
