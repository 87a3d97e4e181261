"""Trains napkinXC's probabilistic label trees on features in a folder, and ranks the judged ones.

Run by a Python that has napkinxc, numpy and scipy; `peers.py` calls it.
"""

import shutil
import sys
import time

from napkinxc.models import PLT
from writing import finish, pairs_of, read, write_predictions

features, labels, judged, settings, output = read(sys.argv)
carried = [[label for label, _ in pairs] for pairs in pairs_of(labels)]
started = time.process_time()
model = PLT(f"{output}.model", seed=0, threads=1, **settings)
model.fit(features, carried)
trained = time.process_time()
found = model.predict_proba(judged, top_k=20)
ranked = time.process_time()
shutil.rmtree(f"{output}.model")
write_predictions(output, found, labels.shape[1])
finish(trained - started, ranked - trained, judged.shape[0])
