"""Documents in memory become a corpus that is read as it was meant."""

from longtail.training.data.dataset import open_dataset
from longtail.training.estimators.corpus import Documents, kept_corpus, write_corpus

TEXTS = ["Oil from olives", 'a "quoted"\nline', "\u2028 separators \u00e9"]


def test_equal_documents_have_one_folder_and_others_another(tmp_path):
    def written(labels):
        documents = Documents(TEXTS[:1], [labels])
        return (
            kept_corpus(tmp_path, lambda folder: write_corpus(folder, documents), "the texts")
            .paths[0]
            .parent
        )

    assert written(["a"]) == written(["a"]) != written(["b"])
    assert len(list(tmp_path.iterdir())) == 2
    assert open_dataset(written(["a"])).labels[0].id == "a"
