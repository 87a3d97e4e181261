"""Trains PECOS XR-Linear on features in a folder and ranks the judged documents.

Run by a Python that has libpecos, scikit-learn, numpy and scipy; `peers.py` calls it.
"""

import shutil
import sys
import time

from pecos.xmc import Indexer, LabelEmbeddingFactory
from pecos.xmc.xlinear.model import XLinearModel
from writing import finish, pairs_of, read, write_predictions

features, labels, judged, settings, output = read(sys.argv)
started = time.process_time()
chain = Indexer.gen(
    LabelEmbeddingFactory.create(labels, features),
    indexer_type="hierarchicalkmeans",
    nr_splits=settings["nr_splits"],
)
model = XLinearModel.train(
    features, labels, C=chain, threads=1,
    negative_sampling_scheme=settings["scheme"], Cp=settings["Cp"], Cn=settings["Cn"],
)  # fmt: skip
trained = time.process_time()
model.save(f"{output}.model")  # what is read again for ranking is many times as fast
model = XLinearModel.load(f"{output}.model", is_predict_only=True)
shutil.rmtree(f"{output}.model")
loaded = time.process_time()
found = model.predict(judged, only_topk=20, beam_size=settings["beam_size"], threads=1)
ranked = time.process_time()
write_predictions(output, pairs_of(found), labels.shape[1])
finish(trained - started, ranked - loaded, judged.shape[0])
