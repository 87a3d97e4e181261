"""The parameters of an estimator become the configuration of a run."""

import numpy as np

from longtail.training.estimators.settings import settings_of


def test_a_file_says_what_the_parameters_do_not(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("scorers: [sparse]\nseed: 9\n")
    assert settings_of(path, None, None, has_label_texts=True).scorers == ("sparse",)
    assert settings_of(str(path), None, None, has_label_texts=True).seed == 9
    assert settings_of(path, None, np.int64(4), has_label_texts=True).seed == 4
