"""Matches of names in texts, against a plain Python oracle of each feature."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer

from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.models.lexical import matcher as module
from longtail.models.lexical.match_kernels import AS_A_CODE, AS_A_PHRASE, IN_A_SENTENCE, PARTLY
from longtail.models.lexical.matcher import FEATURES, FindHistory, Matches, NameMatcher
from longtail.models.lexical.terms import LabelTerms, names_of
from longtail.models.lexical.words import SENTENCE_END
from longtail.training.lexical.fit import count_words, words_of
from tests.closeness import assert_all_close

WORDS = ("river", "fish", "law", "tax", "port", "grain")
TRAINING = ["river fish. law", "fish tax", "river", "law of the river port", "fish law fish", "sea"]
LEAST_SHARE = 0.55
KEYLESS_SHARE = 0.2


def matcher_of(labels: list[Label], training: list[str] = TRAINING) -> NameMatcher:
    catalogue = LabelCatalogue(labels)
    words = words_of(catalogue)
    return NameMatcher(
        catalogue, words, count_words(map(words.read_text, training), catalogue, words)
    )


class Oracle:
    """What the features of a text's matches are, from their definitions."""

    def __init__(self, labels: list[Label], training: list[str], text: str) -> None:
        self.labels = labels
        catalogue = LabelCatalogue(labels)
        self.words = words_of(catalogue)
        self.training = [self.words.read(each).tolist() for each in training]
        self.pieces = self.words.read(text.strip()).tolist()
        self.title = self.words.read(title_of(text.strip())).tolist()
        self.terms = [self._terms(label) for label in labels]  # by label: (words, is its own name)
        self.pairs = {x for own in self.terms for term, _ in own for x in pairwise(term)}
        self.sentence = np.cumsum([piece == SENTENCE_END for piece in self.pieces]).tolist()
        self.longest = self._longest()

    def _terms(self, label: Label) -> list[tuple[tuple[int, ...], bool]]:
        terms: dict[tuple[int, ...], bool] = {}
        for name in names_of(label):
            if read := tuple(x for x in self.words.read(name).tolist() if x >= 0):
                terms.setdefault(read, name == label.name)
        return list(terms.items())

    def is_code(self, term) -> bool:
        return any(character.isdigit() for word in term for character in self.words.words[word])

    def idf(self, key: int | tuple[int, int]) -> float:
        """ln((1 + N) / (1 + df)) + 1 of a word or of a pair."""
        if isinstance(key, tuple):
            df = sum(key in set(pairwise(read)) for read in self.training)
        else:
            df = sum(key in read for read in self.training)
        return float(np.float32(np.log((1 + len(self.training)) / (1 + df)) + 1))

    def weight(self, words) -> float:
        return sum(self.idf(word) for word in set(words))

    def share(self, term, present) -> float:
        return self.weight(set(term) & set(present)) / self.weight(term)

    def places(self, term) -> list[int]:
        """Where the words of a term stand in their order."""
        ends = range(len(self.pieces) - len(term) + 1)
        return [at for at in ends if tuple(self.pieces[at : at + len(term)]) == term]

    def _longest(self) -> list[int]:
        longest = [0] * len(self.pieces)
        for own in self.terms:
            for term, _ in own:
                for at in self.places(term):
                    for place in range(at, at + len(term)):
                        longest[place] = max(longest[place], len(term))
        return longest

    def num_free(self, term) -> int:
        return sum(self.longest[at] <= len(term) for at in self.places(term))

    def in_sentences(self, term) -> tuple[float, int, int, int]:
        """Share in a sentence, whole sentences, first and last place of the rarest word there."""
        there = [word for word in dict.fromkeys(term) if word in self.pieces]
        if not there:
            return 0.0, 0, 0, 0
        rarest = min(there, key=self.pieces.count)
        found = {}  # by sentence: share, first place of the rarest word
        for place, piece in enumerate(self.pieces):
            if piece == rarest:
                number = self.sentence[place]
                present = [
                    p for p, s in zip(self.pieces, self.sentence, strict=True) if s == number
                ]
                found.setdefault(number, (self.share(term, present), place))
        best = max(share for share, _ in found.values())
        places = [place for share, place in found.values() if share > best - 1e-9]
        num_whole = sum(share > 0.999 for share, _ in found.values())
        return best, num_whole, places[0], places[-1]

    def kind(self, term) -> int:
        if self.num_free(term):
            return AS_A_CODE if self.is_code(term) else AS_A_PHRASE
        return IN_A_SENTENCE if self.in_sentences(term)[1] else PARTLY

    def value(self, term) -> float:
        return 4 * self.kind(term) + 2 * self.in_sentences(term)[0] + self.share(term, self.pieces)

    def cosine(self, label: int) -> float:
        names = [term for term, _ in self.terms[label] if not self.is_code(term)]
        mine = {x for term in names for x in (*term, *pairwise(term))}
        text = [*self.pieces, *pairwise(self.pieces)]
        known = {x for x in text if x in self.pairs or (isinstance(x, int) and x >= 0)}
        found = {x: (1 + np.log(text.count(x))) * self.idf(x) for x in known}
        dot = sum(found[x] * self.idf(x) for x in mine if x in found)
        norms = (sum(x**2 for x in found.values()), sum(self.idf(x) ** 2 for x in mine))
        return dot / np.sqrt(norms[0] * norms[1]) if dot else 1e-9

    def key_words(self, term) -> set[int]:
        """The rarest words, up to the one without which less than a match needs is left."""
        keys, rarer = set(), 0.0
        for word in sorted(set(term), key=lambda word: (-self.idf(word), word)):
            if rarer > (1 - KEYLESS_SHARE + 1e-4) * self.weight(term):
                break
            keys.add(word)
            rarer += self.idf(word)
        return keys

    def touched(self) -> list[int]:
        """Labels of which the text has a key word."""
        return [
            label
            for label, own in enumerate(self.terms)
            if any(self.key_words(term) & set(self.pieces) for term, _ in own)
        ]

    def candidates(self, num_nearest: int, slack: float) -> set[int]:
        """Matched labels; cosines may be so much off."""
        touched = self.touched()
        cosines = sorted((self.cosine(label) for label in touched), reverse=True)
        least = cosines[num_nearest - 1] if len(touched) > num_nearest else -1.0
        return {
            label
            for label in touched
            if self.cosine(label) >= least - slack
            or any(self.share(term, self.pieces) >= LEAST_SHARE for term, _ in self.terms[label])
        }

    def features(self, label: int, term, is_own: bool, matched: dict[int, int]) -> list[float]:
        """All that a text tells; `matched` are the matched labels and how each was found."""
        share, num_whole, first, last = self.in_sentences(term)
        num_free = sum(self.num_free(each) for each, _ in self.terms[label])
        num_phrases = sum(len(self.places(each)) for each, _ in self.terms[label])
        size = len(self.pieces)
        cosine, largest = self.cosine(label), max(map(self.cosine, matched))
        alike = {
            other
            for other, own in enumerate(self.terms)
            if other != label and any(set(each) == set(term) for each, _ in own)
        }
        whole = {other for other, kind in matched.items() if kind != PARTLY}
        return [
            self.share(term, self.pieces), share, np.log1p(num_free), np.log1p(num_whole),
            (first + 1) / (size + 1), (last + 1) / (size + 1), self.share(term, self.title),
            float(is_own), len(term), self.weight(term), np.log1p(len(alike)),
            num_free / num_phrases if num_phrases else 1.0, cosine, cosine / largest,
            np.log1p(size), len(self.relatives(label) & whole),
        ]  # fmt: skip

    def relatives(self, label: int) -> set[int]:
        """Parents and children; of equal names the first is meant."""
        names = [each.name for each in self.labels]
        edges = {
            (child, names.index(parent))
            for child, each in enumerate(self.labels)
            for parent in each.parents
            if parent in names
        }
        return {other for other in range(len(names)) if other != label} & {
            *(parent for child, parent in edges if child == label),
            *(child for child, parent in edges if parent == label),
        }


def title_of(text: str) -> str:
    """The first line, or the first sentence of a text of one line."""
    line, _, rest = text.partition("\n")
    return line if rest else text.split(". ")[0].removesuffix(".")


NAMES = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join)


@st.composite
def catalogues(draw) -> list[tuple[str, tuple[str, ...], tuple[str, ...], str]]:
    """Name, other names, parents and notation of each label."""
    names = draw(st.lists(NAMES, min_size=1, max_size=9))
    others = st.lists(NAMES, max_size=2).map(tuple)
    parents = st.lists(st.sampled_from(names), max_size=2).map(tuple)
    notations = st.sampled_from(["", "N53.77", "x1y", "12345"])
    return [(name, draw(others), draw(parents), draw(notations)) for name in names]


def labels_of(drawn) -> list[Label]:
    return [
        Label(f"L{i}", name, alternative_names=others, parents=parents, notation=notation)
        for i, (name, others, parents, notation) in enumerate(drawn)
    ]


TEXTS = st.lists(
    st.sampled_from(
        [
            *WORDS,
            "rivers",
            "zebra",
            "river law",
            "law.",
            "fish.",
            "tax.",
            "port\n",
            "n53.77",
            "X1Y.",
            "12345",
        ]
    ),
    max_size=14,
).map(" ".join)


@settings(max_examples=60)
@given(drawn=catalogues(), text=TEXTS, num_nearest=st.sampled_from([1, 3, 30]))
def test_every_feature_is_what_it_says(drawn, text, num_nearest):
    labels = labels_of(drawn)
    oracle = Oracle(labels, TRAINING, text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_NUM_NEAREST", num_nearest)
        found = matcher_of(labels).match([text])
    chosen = found.labels.tolist()
    assert chosen == sorted(set(chosen))
    assert oracle.candidates(num_nearest, -1e-5) <= set(chosen)
    assert set(chosen) <= oracle.candidates(num_nearest, 1e-5)
    terms = LabelTerms.of(LabelCatalogue(labels), oracle.words)
    matched = {}
    for label in chosen:
        values = [oracle.value(term) for term, _ in oracle.terms[label]]
        matched[label] = oracle.kind(oracle.terms[label][int(np.argmax(values))][0])
    for place, label in enumerate(chosen):
        number = found.terms[place] - terms.starts_of_labels[label]
        term, is_own = oracle.terms[label][number]
        assert oracle.value(term) >= max(oracle.value(x) for x, _ in oracle.terms[label]) - 1e-6
        assert found.kinds[place] == oracle.kind(term) == matched[label]
        wanted = oracle.features(label, term, is_own, matched)
        for name, value, right in zip(FEATURES, found.seen[place], wanted, strict=False):
            assert value == pytest.approx(right, rel=1e-4, abs=1e-5), name


@given(drawn=catalogues(), texts=st.lists(TEXTS, min_size=1, max_size=5))
def test_texts_have_the_same_matches_to_the_bit_alone_and_together(drawn, texts):
    matcher = matcher_of(labels_of(drawn))
    together, at = matcher.match(texts), 0
    for text in texts:
        alone = matcher.match([text])
        stop = at + len(alone.labels)
        for name in ("labels", "terms", "kinds", "seen"):
            whole = getattr(together, name)[at:stop]
            assert whole.tobytes() == getattr(alone, name).tobytes(), name
        at = stop
    assert at == len(together.labels)
    assert together.texts.tolist() == sorted(together.texts.tolist())


def feature(found: Matches, name: str, label: int = 0) -> float:
    (place,) = np.flatnonzero(found.labels == label)
    return float(found.seen[place, FEATURES.index(name)])


def test_a_name_inside_a_longer_one_is_not_free():
    labels = [Label("A", "law"), Label("B", "river law")]
    found = matcher_of(labels).match(["The river law and a law. Law of the river law."])
    share = "share of places in no longer name"
    assert feature(found, share, 0) == 0.5  # two of four
    assert feature(found, share, 1) == 1.0
    assert feature(found, "log(1 + free phrases)", 0) == pytest.approx(np.log(3))
    hidden = matcher_of(labels).match(["river law"])
    assert hidden.kinds.tolist() == [IN_A_SENTENCE, AS_A_PHRASE]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Rivers' law", AS_A_PHRASE), ("river-law", AS_A_PHRASE),
        ("law of the river", IN_A_SENTENCE), ("the river. the law", PARTLY), ("river. Law", PARTLY),
        ("river\n\nlaw", PARTLY), ("river", PARTLY),
    ],
)  # fmt: skip
def test_a_name_is_found_in_three_ways(text, kind):
    assert matcher_of([Label("A", "river law")]).match([text]).kinds.tolist() == [kind]


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("river law\nfish", 1.0),
        ("\n\n river law\nfish", 1.0),
        ("fish\nriver law", 0.0),
        ("river law. fish", 1.0),
        ("fish. river law", 0.0),
        ("fish river law", 1.0),  # all of it is title
        ("fish river law\n", 1.0),
    ],
)
def test_the_title_is_the_first_line_or_the_first_sentence(text, share):
    found = matcher_of([Label("A", "river law")]).match([text])
    assert feature(found, "share in the title") == pytest.approx(share)


def test_cosines_are_those_of_scikit_learn():
    """Sublinear tf-idf with pairs, where labels have one name and texts one sentence."""
    names = ["river law", "fish", "law port tax", "grain of grain", "port"]
    labels = [Label(f"L{i}", name) for i, name in enumerate(names)]
    matcher = matcher_of(labels)
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), token_pattern=r"\w+").fit(names)  # noqa: S106
    counted = TfidfVectorizer(
        ngram_range=(1, 2), sublinear_tf=True, vocabulary=vectorizer.vocabulary_
    ).fit([text.replace(".", " x") for text in TRAINING])
    texts = ["river law tax", "fish fish grain port law port", "law zebra port tax of", "grain of"]
    binary = TfidfVectorizer(ngram_range=(1, 2), binary=True, vocabulary=counted.vocabulary_)
    binary.fit([text.replace(".", " x") for text in TRAINING])
    wanted = (counted.transform(texts) @ binary.transform(names).T).toarray()
    found = matcher.match(texts)
    assert len(found.labels) == np.count_nonzero(wanted)
    cosines = found.seen[:, FEATURES.index("cosine")]
    assert_all_close(cosines, wanted[found.texts, found.labels], rtol=1e-5)


def test_finds_are_described_by_log_odds_with_a_prior_of_their_kind():
    found = np.array([[10, 0, 4, 0], [0, 0, 6, 0]])
    right = np.array([[1, 0, 4, 0], [0, 0, 1, 0]])
    history = FindHistory(found, right)
    kinds = np.array([0, 2, 2, 1])
    labels = np.array([0, 0, 1, 1])
    wanted = []
    for label, kind in zip(labels, kinds, strict=True):
        q = (right[:, kind].sum() + 0.5) / (found[:, kind].sum() + 1)
        good, bad = (
            right[label, kind] + 10 * q,
            found[label, kind] - right[label, kind] + 10 * (1 - q),
        )
        wanted.append([np.log(good / bad), np.log(1 + found[label, kind])])
    assert_all_close(history.features(labels, kinds), wanted, rtol=1e-6)
    code = history.features(np.array([0]), np.array([AS_A_CODE]))
    assert code[0, 0] == pytest.approx(np.log(19))  # right until found wrong


def test_histories_are_added_and_taken_off():
    rng = np.random.default_rng(0)
    first, second = (FindHistory(*(rng.integers(0, 9, (3, 3)) for _ in range(2))) for _ in range(2))
    both = first.plus(second)
    assert np.array_equal(both.found, first.found + second.found)
    rest = both.plus(second, -1)
    assert np.array_equal(rest.found, first.found) and np.array_equal(rest.right, first.right)
