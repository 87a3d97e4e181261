"""Rules are set by name; what can't be meant is refused with what was expected."""

import pytest

from longtail.ext.promotion.rules import rules_of
from longtail.models.errors import ConfigError


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("margin", "expected RULE=VALUE, the rule being one of require,"),
        ("margin=much", "got 'much', expected a number"),
        ("margin=nan", "expected a fraction from 0 to 1"),
        ("min_documents=1.5", "got '1.5', expected a whole number"),
        ("require=best", "got 'best', expected better or not-worse"),
        ("minutes=0", "expected a number above 0"),
    ],
)
def test_what_can_not_be_meant_is_refused(setting, told):
    with pytest.raises(ConfigError) as refused:
        rules_of([setting])
    assert told in str(refused.value)
