"""Which languages texts are in: the first article of the Declaration of Human Rights."""

# ruff: noqa: RUF001

import pytest

from longtail.training.data.languages import LanguageCount, language_of

TEXTS = {
    "ca": "Tots els éssers humans neixen lliures i iguals en dignitat i en drets. Són dotats",
    "cs": "Všichni lidé rodí se svobodní a sobě rovní co do důstojnosti a práv. Jsou nadáni",
    "da": "Alle mennesker er født frie og lige i værdighed og rettigheder. De er udstyret af",
    "de": "Alle Menschen sind frei und gleich an Würde und Rechten geboren. Sie sind mit",
    "el": "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα",
    "en": "All human beings are born free and equal in dignity and rights. They are endowed with",
    "es": "Todos los seres humanos nacen libres e iguales en dignidad y derechos y, como",
    "et": "Kõik inimesed sünnivad vabadena ja võrdsetena oma väärikuselt ja õigustelt. Neile on",
    "eu": "Gizon-emakume guztiak aske jaiotzen dira, duintasun eta eskubide berberak dituztela;",
    "fi": "Kaikki ihmiset syntyvät vapaina ja tasavertaisina arvoltaan ja oikeuksiltaan. Heille on",
    "fr": "Tous les êtres humains naissent libres et égaux en dignité et en droits. Ils sont",
    "hu": "Minden emberi lény szabadon születik és egyenlő méltósága és joga van. Az emberek hogy",
    "it": "Tutti gli esseri umani nascono liberi ed eguali in dignità e diritti. Essi sono dotati",
    "lt": "Visi žmonės gimsta laisvi ir lygūs savo orumu ir teisėmis. Jiems suteiktas protas ir",
    "nl": "Alle mensen worden vrij en gelijk in waardigheid en rechten geboren. Zij zijn",
    "no": "Alle mennesker er født frie og med samme menneskeverd og rettigheter. De er av",
    "pl": "Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw. Są oni",
    "pt": "Todos os seres humanos nascem livres e iguais em dignidade e em direitos. São",
    "ro": "Toate ființele umane se nasc libere și egale în demnitate și în drepturi. Ele sunt",
    "ru": "Все люди рождаются свободными и равными в своём достоинстве и правах. Они наделены на",
    "sv": "Alla människor är födda fria och lika i värde och rättigheter. De är utrustade med",
    "tr": "Bütün insanlar hür, haysiyet ve haklar bakımından eşit doğarlar. Akıl ve vicdana",
}


@pytest.mark.parametrize("language", TEXTS)
def test_the_language_of_a_sentence_is_told(language):
    assert language_of(TEXTS[language]) == language


@pytest.mark.parametrize("text", ["", "42", "Schuhe rot", "in"])
def test_nothing_is_told_without_function_words_of_one_language(text):
    assert language_of(text) == ""


def test_languages_of_a_tenth_of_the_texts_count():
    texts = [TEXTS["de"]] * 8 + [TEXTS["en"]] * 11 + [TEXTS["sv"]] + ["rot"] * 5
    found = LanguageCount.of(texts)
    assert found.shares == {"en": 0.55, "de": 0.4}
    assert found.languages == ("en", "de")
    assert str(found) == "English 55%, German 40% (20 of 25 have words that tell)"
    few = LanguageCount.of([TEXTS["de"]] + ["rot"] * 30)
    assert str(few) == "not known (1 of 31 have words that tell)"


def test_few_texts_that_tell_decide_nothing():
    found = LanguageCount.of([TEXTS["de"], *["rot"] * 10])
    assert found.languages == LanguageCount().languages == ()
    assert "not known (1 of 11 " in str(found) and "not known" in str(LanguageCount())
