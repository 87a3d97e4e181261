"""The processor, as the system tells it."""

from __future__ import annotations

from models import processor
from models.processor import Processor, find_processor

CPU_INFO = """processor\t: 0
model name\t: AMD EPYC 9V74
flags\t\t: fpu avx2 avx512f avx512_bf16 sse

processor\t: 1
model name\t: another
flags\t\t: amx_bf16
"""


def test_the_processor_is_that_of_the_system(tmp_path, monkeypatch):
    path = tmp_path / "cpuinfo"
    path.write_text(CPU_INFO)
    monkeypatch.setattr(processor, "_CPU_INFO", path)
    found = find_processor()
    assert (found.model, found.flags) == ("AMD EPYC 9V74", ("avx2", "avx512f", "avx512_bf16"))


def test_a_system_that_does_not_tell_has_a_processor_without_a_name(tmp_path, monkeypatch):
    monkeypatch.setattr(processor, "_CPU_INFO", tmp_path / "none")
    monkeypatch.delattr("os.sched_getaffinity", raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 6)
    assert find_processor() == Processor(None, (), 6)
