"""Which languages texts are written in, recognised by their function words.

The most common words of a language (articles, pronouns, prepositions, conjunctions) are a third of
every running text, and few of them are shared by two languages.
"""

# ruff: noqa: RUF001

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from longtail.models.scorers.word_forms import ENGLISH, STEMMERS

_FUNCTION_WORDS = {
    "ca": "el els la les un una de del dels que en per amb és són no més com però al als seva "
    "aquest aquesta entre també ha han va dins sobre",
    "cs": "na je jsou se si že do ze pro ke po od za jako který která které není jeho jejich "
    "při nebo ale tak by byl byla bylo",
    "da": "og at det en et den til er som på de med af for ikke der var fra om han havde har "
    "også efter ved eller mellem hvordan bliver blev sig kan",
    "de": "der die das und in zu den mit von für auf ist im dem nicht ein eine als auch es an "
    "aus des einer einem einen sich bei nach wird sind oder wie zur zum über durch werden",
    "el": "και το της του να την με που για τα από των στο είναι οι σε τη τον στην δεν θα τις "
    "μια ένα στη ως",
    "en": "the of and to in is that for it with as on be by are this from at an was or which "
    "not have has their its between how into these were can",
    "es": "el la los las de del en que un una por con para se es al lo como más su sus no entre "
    "sobre este esta son fue ha muy también desde",
    "et": "ja on ei see et ta kui oma ning mis või ka aga seda selle nii oli siis ma kes nende "
    "tema kuid veel mille ole olid kõik nad",
    "eu": "eta da du ez bat dira izan zen ere bere dute hau beste egin baina edo duen hori oso "
    "zuen dituzte izango",
    "fi": "ja on ei se että oli hän mutta ovat joka kun niin tai sen myös kuin olla ole mitä "
    "jotka sekä voi sitä jossa tämä tämän eivät kaikki heidän",
    "fr": "le la les de des du et en un une que qui dans pour par sur au aux est avec ce cette "
    "ne pas plus son sa ses ou sont comme entre leur il se",
    "hu": "az és hogy nem is egy ez meg de csak volt mint már vagy ha azt el ki még ezt lehet "
    "amely között által szerint való",
    "it": "il lo la gli le di del della dei delle che in un una per con non si sono da nel "
    "nella al alla come più anche tra su dal dalla ma",
    "lt": "ir yra kad su iš tai kaip buvo ne apie jo ar už per bet nuo dėl jos arba taip pat "
    "šis tik prie jų kurie",
    "nl": "de het een en van in is op te dat die voor met niet zijn aan er om als bij ook maar "
    "door naar uit of wordt worden tot over deze hoe hun",
    "no": "og det som en et på er til av for med at ikke den de har fra om var han ble også "
    "etter ved eller mellom hvordan blir seg kan være dette",
    "pl": "na się nie do to jest że jak za od po przez dla oraz są ma co jego ich przy lub ale "
    "był była było który która które",
    "pt": "os as de do da dos das em que um uma para com por não se no na nos nas ao mais como "
    "sua seu são ou entre foi também pela pelo",
    "ro": "și în de la cu pe din un care nu este sunt pentru că mai prin sau după fi ale lui "
    "fost al se între despre cel sa",
    "ru": "не на что по это как но из за от для его или при так же она они был была было быть "
    "между",
    "sv": "och att det en ett den till är som på de med av för inte var från om han har också "
    "efter vid eller mellan hur blir sig kan detta genom",
    "tr": "ve bir bu da de için ile olarak gibi daha çok olan en ne ya kadar ama sonra göre "
    "değil her veya olduğu arasında",
}  # fmt: skip
"""By ISO 639 code, of each language that has a form of its own in `WordForms`."""
_LEAST_SHARE = 0.1
"""Least share of a language among the texts whose language is known."""
_LANGUAGES_OF: dict[str, list[str]] = {}
for _language, _words in _FUNCTION_WORDS.items():
    for _word in _words.split():
        _LANGUAGES_OF.setdefault(_word, []).append(_language)
_WORD = re.compile(r"[^\W\d_]+")
_MOST_READ = 2000
"""Characters of a text that are read."""


def language_of(text: str) -> str:
    """Return the language that most function words of a text are of, as an ISO 639 code.

    Empty where there are none, or two languages have equally many.
    """
    words = _WORD.findall(text[:_MOST_READ].lower())
    found = Counter(language for word in words for language in _LANGUAGES_OF.get(word, ()))
    (first, count), (_, next_count) = [*found.most_common(2), ("", 0), ("", 0)][:2]
    return first if count > next_count else ""


@dataclass(slots=True)
class LanguageCount:
    """Counts the texts of each language.

    Attributes:
        num_texts: All of them.
        told: Those of each language, by ISO 639 code.
    """

    num_texts: int = 0
    told: Counter[str] = field(default_factory=Counter)

    def add(self, text: str) -> None:
        """Count one text."""
        self.num_texts += 1
        if language := language_of(text):
            self.told[language] += 1

    @classmethod
    def of(cls, texts: Iterable[str]) -> LanguageCount:
        """Count texts."""
        found = cls()
        for text in texts:
            found.add(text)
        return found

    @property
    def num_told(self) -> int:
        """How many texts tell their language."""
        return self.told.total()

    @property
    def shares(self) -> dict[str, float]:
        """Share of each language that counts in the texts that tell, the largest first."""
        shares = {x: round(count / self.num_told, 4) for x, count in self.told.most_common()}
        return {language: share for language, share in shares.items() if share >= _LEAST_SHARE}

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages that count; none where too few texts tell theirs."""
        return tuple(self.shares) if self.num_told >= _LEAST_SHARE * self.num_texts else ()

    def __str__(self) -> str:
        """Return the languages with their shares; none where few texts tell."""
        shares = ", ".join(f"{name_of(x)} {self.shares[x]:.0%}" for x in self.languages)
        told = f"{self.num_told} of {self.num_texts} have words that tell"
        return f"{shares} ({told})" if shares else f"not known ({told})"


def function_words(language: str) -> list[str]:
    """Return the most common words of a language."""
    return _FUNCTION_WORDS[language].split()


def name_of(language: str) -> str:
    """Return the English name of a language."""
    return "English" if language == ENGLISH else STEMMERS[language].title()
