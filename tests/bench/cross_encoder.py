# ruff: noqa: B007, C901, E501, E741, N806, PLR0912, PLR0915
"""Own reviewer on hard negatives of the ensemble: label tokens attend to the document's tokens.

python tests/bench/cross_encoder.py REGISTRY DATA OUT.npz [--split dev --documents 1600 --dev 500]
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
import typer
from torch import nn
from transformers import AutoModel, AutoTokenizer

from longtail.models.bundle.registry import Registry
from longtail.models.encoders.pretrained import PACKAGED, find_encoder
from longtail.models.kinds.storage import read_parts
from longtail.models.options import RankingOptions
from longtail.models.predict.predictor import Predictor
from longtail.training.assessment.truth import truth_of
from longtail.training.assessment.untrained import open_as_trained
from longtail.training.calibration.scored_pairs import spread_rows
from longtail.training.formats.options import RECOGNISED

torch.set_num_threads(1)
PAD = 0


def say(*w):
    print(*w, file=sys.stderr, flush=True)


class Reader(nn.Module):
    def __init__(self, doc_len, label_len, trained=3):
        super().__init__()
        folder = find_encoder(PACKAGED).folder
        torch.manual_seed(0)
        self.tok = AutoTokenizer.from_pretrained(folder)
        self.bert = AutoModel.from_pretrained(folder, add_pooling_layer=False)
        self.head = nn.Linear(self.bert.config.hidden_size, 1)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.scale = nn.Parameter(torch.tensor(20.0))
        self.doc_len, self.label_len, self.trained = doc_len, label_len, trained
        self.bert.embeddings.requires_grad_(False)
        for layer in self.bert.encoder.layer[:-trained]:
            layer.requires_grad_(False)

    def ids(self, texts, most):
        return self.tok(texts, truncation=True, max_length=most, add_special_tokens=False)[
            "input_ids"
        ]

    @torch.inference_mode()
    def vectors(self, rows, batch=32):
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        out = torch.zeros(len(rows), 384)
        for s in range(0, len(order), batch):
            own = order[s : s + batch]
            w = max(len(rows[i]) for i in own) + 2
            ids = torch.zeros(len(own), w, dtype=torch.long)
            for j, i in enumerate(own):
                ids[j, : len(rows[i]) + 2] = torch.tensor([101, *rows[i], 102])
            m = ids != 0
            h = self.bert(input_ids=ids, attention_mask=m.long()).last_hidden_state
            v = (h * m[..., None]).sum(1) / m.sum(1, keepdim=True)
            out[own] = nn.functional.normalize(v, dim=1)
        return out

    def forward(self, docs, labels, cosines):
        """docs: token rows; labels: for each doc list of token rows; cosines (B, m) -> logits (B, m) (-inf pad)."""
        seqs, pos, seg = [], [], []
        for d, own in zip(docs, labels, strict=False):
            s = [101, *d, 102]
            p = list(range(len(s)))
            g = [0] * len(s)
            n = len(s)
            for k, l in enumerate(own, 1):
                s += [*l, 102]
                p += range(n, n + len(l) + 1)
                g += [k] * (len(l) + 1)
            seqs.append(s)
            pos.append(p)
            seg.append(g)
        B, W, M = len(seqs), max(map(len, seqs)), max(map(len, labels))
        ids = torch.zeros(B, W, dtype=torch.long)
        ps = torch.zeros_like(ids)
        sg = torch.full_like(ids, -1)
        for i, (s, p, g) in enumerate(zip(seqs, pos, seg, strict=False)):
            ids[i, : len(s)] = torch.tensor(s)
            ps[i, : len(s)] = torch.tensor(p)
            sg[i, : len(s)] = torch.tensor(g)
        a, b = sg[:, :, None], sg[:, None, :]
        ok = ((b == 0) & (a >= 0)) | (a == b)
        mask = torch.zeros(B, 1, W, W).masked_fill(~ok[:, None], -1e9)
        with torch.no_grad():
            h = self.bert.embeddings(
                input_ids=ids, position_ids=ps, token_type_ids=(sg > 0).long() * 0
            )
            for layer in self.bert.encoder.layer[: -self.trained]:
                h = layer(h, mask)
        for layer in self.bert.encoder.layer[-self.trained :]:
            h = layer(h, mask)
        onehot = (sg[:, :, None] == torch.arange(1, M + 1)).float()  # (B, W, M)
        pooled = torch.einsum("bwm,bwd->bmd", onehot, h) / onehot.sum(1).clamp(min=1)[..., None]
        out = self.scale * cosines + self.head(pooled)[..., 0]
        there = torch.arange(M)[None] < torch.tensor([len(x) for x in labels])[:, None]
        return out.masked_fill(~there, -torch.inf)


def read(dataset, split, predictor, most, skip=0):
    own = dataset.split(split)
    truth, _ = truth_of(predictor.catalogue, dataset, own.scan().labels)
    rows = spread_rows(truth.shape[0], most)
    wanted = set(rows.tolist())
    return [t for i, t in enumerate(own.texts()) if i in wanted], truth[rows], rows


def main(
    registry: Path,
    data: Path,
    out: Path,
    split: str = "dev",
    documents: int = 2000,
    dev: int = 400,
    n: int = 50,
    doc_len: int = 96,
    label_len: int = 16,
    wrong: int = 9,
    right: int = 4,
    rate: float = 1e-4,
    epochs: int = 1,
    version: str = "current",
    group: int = 4,
):
    t0 = time.process_time()
    bundle = Registry(registry).open(version)
    dataset = open_as_trained(data, RECOGNISED, [bundle], bundle.catalogue)
    scorer = bundle.manifest.default_scorer
    P = Predictor(read_parts(bundle), default_scorer=scorer)
    cat = P.catalogue
    counts = cat.training_counts
    names = [x.pseudo_description or x.name for x in cat]
    plain = [x.name for x in cat]
    say("scorer", scorer, "labels", len(cat), "load", time.process_time() - t0)
    R = Reader(doc_len, label_len)
    R.eval()
    label_ids = R.ids([x[:300] for x in names], label_len)
    t0 = time.process_time()
    dev_texts, dev_truth, _dev_rows = read(dataset, split, P, dev)
    k = min(n, len(cat))
    t0 = time.process_time()
    dev_rank = P.rank(P.read(dev_texts), RankingOptions(k=k))
    rank_s = time.process_time() - t0
    texts, truth, _ = read(dataset, "train", P, documents)
    rank = P.rank(P.read(texts), RankingOptions(k=min(30, len(cat))))
    say("read", len(texts), "train", len(dev_texts), "dev; rank ms", 1e3 * rank_s / len(dev_texts))
    rng = np.random.default_rng(0)
    docs = R.ids([t[:1500] for t in texts], doc_len)
    dev_docs = R.ids([t[:1500] for t in dev_texts], doc_len)
    lists = []
    for row in range(len(texts)):
        yes = truth.indices[truth.indptr[row] : truth.indptr[row + 1]]
        yes = yes[yes < len(cat)]
        no = np.setdiff1d(rank.labels[row], yes)
        no = no[(no >= 0)]
        no = no[counts[no] > 0]
        if not len(yes) or len(no) < 3:
            continue
        y = rng.permutation(yes)[:right]
        x = rng.permutation(no)[:wrong]
        lists.append((row, y.tolist(), x.tolist()))
    say("lists", len(lists), "pairs", sum(len(a) + len(b) for _, a, b in lists))
    used = sorted(
        {x for _, a, b in lists for x in a + b}
        | set(np.unique(dev_rank.labels[dev_rank.labels >= 0]).tolist())
    )
    t0 = time.process_time()
    LV = torch.zeros(len(cat), 384)
    LV[used] = R.vectors([label_ids[i] for i in used])
    label_s = time.process_time() - t0
    NV = torch.zeros(len(cat), 384)
    NV[used] = R.vectors(R.ids([plain[i][:300] for i in used], 24))
    t0 = time.process_time()
    DV = R.vectors(docs)
    doc_s = time.process_time() - t0
    EV = R.vectors(dev_docs)
    say("vectors: ms a doc", 1e3 * doc_s / len(docs), "ms a label", 1e3 * label_s / len(used))
    LV, NV, DV, EV = (x.clone() for x in (LV, NV, DV, EV))
    lab = np.maximum(dev_rank.labels, 0)
    cos = np.einsum("dk,dmk->dm", EV.numpy(), LV.numpy()[lab])
    cosn = np.einsum("dk,dmk->dm", EV.numpy(), NV.numpy()[lab])
    base = {
        "labels": dev_rank.labels,
        "scores": dev_rank.scores,
        "counts": counts,
        "truth_indptr": dev_truth.indptr,
        "truth_indices": dev_truth.indices,
        "width": dev_truth.shape[1],
        "num_docs": bundle.manifest.training_document_count,
        "cosine": cos,
        "cosine_name": cosn,
        "names": np.array(plain, dtype=object),
    }
    np.savez(out, **base)
    if documents < 50:
        return
    params = [p for p in R.parameters() if p.requires_grad]
    opt = torch.optim.AdamW(
        [
            {"params": [p for p in params if p is not R.scale and p.dim() > 1 and p.shape[0] > 1]},
            {"params": [R.head.weight, R.head.bias], "lr": 10 * rate},
            {"params": [p for p in params if p.dim() == 1 and p is not R.head.bias]},
            {"params": [R.scale], "lr": 0.1},
        ],
        lr=rate,
        weight_decay=0.01,
    )
    steps = epochs * (len(lists) // group)
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda s: min((s + 1) / max(1, steps * 0.1), max(0.0, (steps - s) / (steps * 0.9)))
    )
    losses = []
    t0 = time.process_time()
    step = 0
    R.train()
    for m in R.modules():
        if isinstance(m, nn.Dropout):
            m.p = 0.0
    for _ in range(epochs):
        order = rng.permutation(len(lists))
        # pools of 32 documents sorted by length, batches of `group`
        batches = []
        for s in range(0, len(order), 16 * group):
            pool = sorted(order[s : s + 16 * group], key=lambda i: len(docs[lists[i][0]]))
            batches += [pool[j : j + group] for j in range(0, len(pool), group)]
        batches = [batches[i] for i in rng.permutation(len(batches))]
        for b in batches:
            if step >= steps or len(b) < group:
                continue
            own = [lists[i] for i in b]
            M = max(len(y) + len(x) for _, y, x in own)
            c = torch.zeros(len(own), M)
            for i, (r, y, x) in enumerate(own):
                c[i, : len(y) + len(x)] = LV[[*y, *x]] @ DV[r]
            logits = R(
                [docs[r] for r, _, _ in own],
                [[label_ids[l] for l in [*y, *x]] for _, y, x in own],
                c,
            )
            loss = 0
            for i, (r, y, x) in enumerate(own):
                pos, neg = logits[i, : len(y)], logits[i, len(y) : len(y) + len(x)]
                lse = torch.logsumexp(neg, 0)
                loss = loss + (torch.logaddexp(pos, lse) - pos).mean()
            loss = loss / len(own)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(params, 1.0)
            opt.step()
            sched.step()
            losses.append(loss.item())
            step += 1
            if step % 50 == 0:
                say(
                    step,
                    "of",
                    steps,
                    "loss",
                    round(float(np.mean(losses[-50:])), 4),
                    "scale",
                    round(R.scale.item(), 2),
                    "s",
                    round(time.process_time() - t0, 1),
                )
    train_s = time.process_time() - t0
    R.eval()
    t0 = time.process_time()
    got = np.full(dev_rank.labels.shape, -np.inf, np.float32)
    with torch.inference_mode():
        for row in range(len(dev_texts)):
            own = [int(x) for x in dev_rank.labels[row] if x >= 0]
            c = torch.tensor(cos[row : row + 1, : len(own)], dtype=torch.float32)
            got[row, : len(own)] = R([dev_docs[row]], [[label_ids[l] for l in own]], c)[0].numpy()
            if row % 100 == 99:
                say(row + 1, "reviewed", round(time.process_time() - t0, 1))
    score_s = time.process_time() - t0
    np.savez(out, **base, cross=got, losses=np.array(losses))
    print(
        json.dumps(
            {
                "train_s": train_s,
                "ms_a_document": 1e3 * score_s / len(dev_texts),
                "doc_ms": 1e3 * doc_s / len(docs),
                "first": float(np.mean(losses[:50])),
                "last": float(np.mean(losses[-50:])),
            }
        )
    )


typer.run(main)
