"""Parquet files that workers of a Ray cluster answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from longtail.ext.ray.runtime import start_ray
from longtail.service.offline.parts import Parts, Record


def answer_on_workers(
    num_workers: int, num_threads: int, device: str, parts: Parts, names: Sequence[str]
) -> Iterator[Record]:
    """Yield records of parts from workers of a Ray cluster, which repeat their part if they die.

    Each is a process with a model, so many threads and, with the device "cuda", a GPU.
    """
    ray = start_ray(num_workers * num_threads)
    options = {"num_cpus": num_threads, "num_gpus": int(device == "cuda")}
    worker = ray.remote(**options, max_restarts=-1, max_task_retries=-1)(Parts)
    asked = (parts.source, parts.target, parts.predictor, parts.asked)
    pool = ray.util.ActorPool([worker.remote(*asked) for _ in names[:num_workers]])
    yield from pool.map_unordered(lambda each, name: each.answer.remote(name), names)
