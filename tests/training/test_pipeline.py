def test_probe(trained):
    print(trained.bundle.manifest.default_scorer, trained.bundle.manifest.metrics["dev"]["sparse"]["all"], trained.bundle.manifest.label_count)
