"""Labels one level at a time: every label is reached by the path that is given for it."""

from longtail.models.labels.browsing import LabelBrowser
from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.models.labels.hierarchy import LabelHierarchy


def browser_of(labels, max_shown=3):
    catalogue = LabelCatalogue(labels)
    return catalogue, LabelBrowser(catalogue, LabelHierarchy(catalogue), max_shown)


def test_labels_stand_below_their_broader_ones():
    labels = [
        Label("1", "trade"),
        Label("2", "oil", broader=("1", "4")),
        Label("3", "olive oil", broader=("2",)),
        Label("4", "food", broader=("1",)),
        Label("5", "sport"),
        Label("6", "x", broader=("7",)),
        Label("7", "y", broader=("6",)),
    ]
    _, browser = browser_of(labels, max_shown=9)
    assert [node.name for node in browser.below()] == ["sport", "trade", "x"]
    assert browser.path_of(2) == ("trade", "oil", "olive oil")
    assert browser.path_of(6) == ("x", "y")
    shown = list(walk_without_circles(browser))
    assert all((row, browser.path_of(row)) in shown for row in range(len(labels)))


def walk_without_circles(browser, path=()):
    for node in browser.below(path):
        if node.element not in path:
            yield node.row, (*path, node.element)
            yield from walk_without_circles(browser, (*path, node.element))
