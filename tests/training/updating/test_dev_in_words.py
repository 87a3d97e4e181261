"""`longtail learn` says whether the new version ranks dev documents as well as the old one."""

from __future__ import annotations

from dataclasses import replace

from longtail.training.commands.learn import dev_in_words


def test_figures_of_the_default_scorers_stand_beside_those_before(trained):
    def with_p(value):
        figures = {"P@1": value, "P@5": value / 2, "PSP@5": value / 4}
        metrics = {"dev": {"sparse": {"all": figures}}}
        return replace(trained.bundle.manifest, default_scorer="sparse", metrics=metrics)

    said = dev_in_words(with_p(0.8), with_p(0.6))
    assert "P@1 60.00 % (80.00 % before)" in said and "PSP@5 15.00 % (20.00 % before)" in said
    assert dev_in_words(replace(with_p(0.8), metrics={}), with_p(0.6)) == ""
