"""Trains omikuji (Parabel, Bonsai) on features in a folder and ranks the judged documents.

Run by a Python that has omikuji, numpy and scipy; `peers.py` calls it.
"""

import sys
import time
from pathlib import Path

import omikuji
from writing import finish, pairs_of, read, write_predictions

features, labels, judged, settings, output = read(sys.argv)
hyper_parameters = omikuji.Model.default_hyper_param()
beam_size = settings.pop("beam_size")
for name, value in settings.items():
    setattr(hyper_parameters, name, value)
path = Path(f"{output}.training")
with path.open("w") as file:  # the form that omikuji reads
    print(features.shape[0], features.shape[1], labels.shape[1], file=file)
    for pairs, carried in zip(pairs_of(features), pairs_of(labels), strict=True):
        listed = ",".join(str(label) for label, _ in carried)
        print(listed, " ".join(f"{feature}:{value:.7g}" for feature, value in pairs), file=file)
started = time.process_time()
model = omikuji.Model.train_on_data(str(path), hyper_parameters, n_threads=1)
trained = time.process_time()
path.unlink()
found = [model.predict(pairs, beam_size=beam_size, top_k=20) for pairs in pairs_of(judged)]
ranked = time.process_time()
write_predictions(output, found, labels.shape[1])
finish(trained - started, ranked - trained, judged.shape[0])
