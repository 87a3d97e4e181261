"""Stop-words by language: the words that say nothing of a topic, for keywords without them.

English is scikit-learn's list without the words in it that do name topics; German is our own, of
the closed word classes only. Both know lower-case surface forms, as
`longtail.models.scorers.tfidf.tokenize` gives.
"""

from __future__ import annotations

from collections.abc import Iterable

from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from longtail.training.configuration.sections import StopWordLanguage

# "fire" or "interest" can be the one keyword that tells what a label is about; what is wrong with
# such lists: Nothman, Qin & Yurchak 2018, "Stop Word Lists in Free Open-source Software Packages".
_TOPICAL = (
    "amount bill cry describe detail empty fill fire front interest mill mine move serious sincere "
    "system thick thin"
)

# Articles, pronouns, prepositions, conjunctions, auxiliary verbs, particles; no content words.
_GERMAN = """
ab aber alle allem allen aller alles als also am an andere anderem anderen anderer anderes auch
auf aus bei beim bereits bevor bin bis bist da dabei dadurch dafür dagegen daher damit danach
daneben dann daran darauf daraus darf darin darum darunter darüber das dass davon davor dazu
dein deine deinem deinen deiner deines dem demselben den denen denn denselben der deren
derjenige derselbe derselben des deshalb desselben dessen dich die dies diese dieselbe
dieselben diesem diesen dieser dieses dir doch dort du durch durfte dürfen ebenfalls ebenso
eigentlich ein eine einem einen einer eines einige einigem einigen einiger einiges einmal
entweder er es etwa etwas euch euer eure eurem euren eurer eures falls für gab gegen gegenüber
gemäß genau hab habe haben hat hatte hatten hier hierbei hierfür hiermit hin hinter hätte hätten
ich ihm ihn ihnen ihr ihre ihrem ihren ihrer ihres im immer in indem infolge innerhalb ins ist
ja je jede jedem jeden jeder jedes jedoch jemand jene jenem jenen jener jenes jetzt kann kaum
kein keine keinem keinen keiner keines konnte konnten können könnte könnten man manche manchem
manchen mancher manches mehr mein meine meinem meinen meiner meines mich mir mit mittels muss
musste mussten muß müssen müsste nach nachdem neben nein nicht nichts nie niemand noch nun nur
ob obwohl oder ohne per pro schon sehr sei seien sein seine seinem seinen seiner seines seit
seitens selbst sich sie sind so sobald sofern sogar solche solchem solchen solcher solches soll
sollen sollte sollten somit sondern sonst soweit sowie sowohl statt trotz um und uns unser
unsere unserem unseren unserer unseres unter usw vom von vor war waren warum was weder wegen
weil weiter welche welchem welchen welcher welches wem wen wenn wer werde werden wessen wie
wieder will wir wird wo wobei wodurch wofür wohl wollen wollte womit woraus worin wurde wurden
während wäre wären würde würden zu zudem zum zur zwar zwischen über
"""


def stop_words_of(languages: Iterable[StopWordLanguage]) -> frozenset[str]:
    """Return the stop-words of these languages together, in lower case."""
    words = {"en": ENGLISH_STOP_WORDS.difference(_TOPICAL.split()), "de": _GERMAN.split()}
    return frozenset().union(*(words[language] for language in languages))
