"""Whether Spark, Ray Data, Daft and DuckDB give a loop's labels to the bit, and how fast.

    python tests/bench/engines.py REGISTRY [--engines spark,ray,daft,duckdb] [--rounds 3]

The documents are those of the demo, in Parquet files of equal size. Each engine runs on one core
in an environment of its own, which is made in --work once (Spark needs a JVM), in turns with a loop
over the same files: `model.predict` on lists of texts, nothing written. CPU seconds count, those of
this process and of all that descend from it. Both answer one file, and five; the difference is what
four files cost without any start. The least of all rounds counts. `predict` is the command's way.
"""

import argparse
import gzip
import json
import os
import shutil
import subprocess
import sys
import tomllib
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import pyarrow
from machine import begin, same_threads
from pyarrow import dataset, parquet
from recording import Table, add_json_option, keep

import longtail

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "predict": "pyarrow", "spark": "pyspark", "ray": "ray[data]>=2.56", "daft": "daft",
    "duckdb": "duckdb",
}  # fmt: skip
DDL = (
    "id string, label_ids array<string>, label_names array<string>, probabilities array<double>, "
    "scores array<double>, accepted array<boolean>, remarks array<string>, error string, "
    "version int, digest string"
)
MANY, DOCUMENTS, CORES = 5, 10**8, 64


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("registry", type=Path)
    parser.add_argument("--engines", default=",".join(PACKAGES))
    parser.add_argument("--rows", type=int, default=200, help="documents of a file")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", type=Path, default=Path("build/engines"))
    parser.add_argument("--child", help=argparse.SUPPRESS)
    add_json_option(parser)
    same_threads(1)
    chosen = begin(parser)
    if chosen.child:
        print(json.dumps(measure(chosen.child, chosen)))
        return
    chosen.work = chosen.work.absolute()
    write_documents(chosen.work, chosen.rows)
    table = Table({
        "engine": "", "same bits": "", "start, CPU s": ".1f", "CPU ms a document": ".2f",
        "loop, CPU ms": ".2f", "throughput a core / loop's": ".2f",
        f"hours of {CORES} cores for 10^8": ".1f",
    })  # fmt: skip
    for engine in chosen.engines.split(","):
        found = in_own_environment(engine, chosen)
        each, loop = found["engine_s"], found["loop_s"]
        hours = DOCUMENTS * each / CORES / 3600
        table.add(
            engine, found["same"], found["start_s"], 1e3 * each, 1e3 * loop, loop / each, hours
        )
    keep(chosen.json, {"engines": table})


def write_documents(work, rows):
    found = []
    for name in ("trn", "dev", "tst"):
        with gzip.open(ROOT / "training" / "demo_data" / f"{name}.json.gz", "rt") as file:
            found += [json.loads(line) for line in file]
    for number in range(MANY):
        folder = work / "docs" / ("one" if number == 0 else "more")
        folder.mkdir(parents=True, exist_ok=True)
        part = found[number * rows : (number + 1) * rows]
        texts = [f"{x['title']}\n{x['content']}" for x in part]
        ids = [f"{number}-{row}" for row in range(len(part))]
        parquet.write_table(pyarrow.table({"id": ids, "text": texts}), folder / f"{number}.parquet")
    shutil.copytree(work / "docs" / "one", work / "docs" / "more", dirs_exist_ok=True)


def in_own_environment(engine, chosen):
    folder = chosen.work / engine
    python = folder.absolute() / "bin" / "python"
    if not python.exists():
        needed = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        packages = [PACKAGES[engine], "pyarrow>=18", "pandas", *needed["dependencies"]]
        subprocess.run([python, "-m", "pip", "install", "-q", *packages], check=True)
    given = [str(chosen.registry.resolve()), "--work", chosen.work, "--child", engine]
    given += ["--rounds", str(chosen.rounds), "--rows", str(chosen.rows)]
    env = os.environ | {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": str(python)}
    env |= {"RAY_USAGE_STATS_ENABLED": "0", "DO_NOT_TRACK": "1", "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [python, __file__, *given], env=env, check=False, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"{engine}: {done.stderr[-4000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def measure(engine, chosen):
    """Return the seconds of a document by loop and by engine, and whether the bits are the same."""
    label = longtail.arrow_predictor(chosen.registry, id="id", k=5)
    model = longtail.load(chosen.registry, num_threads=1)
    answer = WAYS[engine](label, chosen.work)
    folders = [chosen.work / "docs" / name for name in ("one", "more")]
    target = chosen.work / f"out-{engine}"
    loops, engines = ([float("inf")] * 2 for _ in range(2))
    for _ in range(chosen.rounds + 1):  # the first one is for warming up, if it is slower
        for i, folder in enumerate(folders):
            begun = cpu_seconds()
            for path in sorted(folder.glob("*.parquet")):
                texts = parquet.read_table(path, columns=["text"]).column("text").to_pylist()
                model.predict(texts, k=5)
            loops[i] = min(loops[i], cpu_seconds() - begun)
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir()
            begun = cpu_seconds()
            answer(folder, target)
            engines[i] = min(engines[i], cpu_seconds() - begun)
    expected = pyarrow.concat_tables(map(label.table, map(parquet.read_table, sorted(
        folders[1].glob("*.parquet")
    ))))  # fmt: skip
    rows = chosen.rows * (MANY - 1)
    engine_s, loop_s = (engines[1] - engines[0]) / rows, (loops[1] - loops[0]) / rows
    found = dataset.dataset(target, format="parquet").to_table()
    return {
        "same": digest_of(found) == digest_of(expected),
        "engine_s": engine_s,
        "loop_s": loop_s,
        "start_s": max(0.0, engines[0] - chosen.rows * engine_s),
    }


def cpu_seconds():
    """Return the CPU time of this process and all that descend from it, ended ones included."""
    parents, ticks = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            fields = path.read_text().rpartition(")")[2].split()
            parents[int(path.parent.name)] = int(fields[1])
            ticks[int(path.parent.name)] = sum(map(int, fields[11:15]))
    found = {os.getpid()}
    while more := {each for each, parent in parents.items() if parent in found} - found:
        found |= more
    return sum(ticks[each] for each in found) / os.sysconf("SC_CLK_TCK")


def digest_of(table):
    rows = sorted(table.select(DDL_NAMES).to_pylist(), key=lambda row: row["id"])
    return len(rows), sha256(json.dumps(rows).encode()).hexdigest()


DDL_NAMES = [part.split()[0] for part in DDL.split(", ")]


def predict(label, work):
    from longtail.service.offline.parts import Parts

    def answer(folder, target):
        asked = {"digest": label.digest, "defaults": {}}
        Parts(f"{folder}/*.parquet", str(target), label, asked).predict()

    return answer


def spark(label, work):
    from pyspark.sql import SparkSession

    made = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    session = made.config("spark.sql.warehouse.dir", str(work / "warehouse")).getOrCreate()

    def answer(folder, target):
        documents = session.read.parquet(str(folder))
        documents.mapInArrow(label, DDL).write.mode("overwrite").parquet(str(target))

    return answer


def ray(label, work):
    import ray

    ray.init(address="local", num_cpus=2, include_dashboard=False, object_store_memory=2**27)

    def answer(folder, target):
        documents = ray.data.read_parquet(str(folder))
        answers = documents.map_batches(label.table, batch_format="pyarrow", concurrency=1)
        answers.write_parquet(str(target))

    return answer


def daft(label, work):
    import daft

    schema = label.schema(pyarrow.schema({"id": pyarrow.string(), "text": pyarrow.string()}))

    @daft.func.batch(return_dtype=daft.DataType.from_arrow_type(pyarrow.struct(list(schema))))
    def labels(id, text):  # noqa: A002
        table = pyarrow.table({"id": id.to_arrow(), "text": text.to_arrow()})
        return label.table(table).to_struct_array().combine_chunks()

    def answer(folder, target):
        documents = daft.read_parquet(f"{folder}/*.parquet")
        answers = documents.select(labels(daft.col("id"), daft.col("text")).alias("labels"))
        answers.select(daft.col("labels").unnest()).write_parquet(str(target))

    return answer


def duckdb(label, work):
    import duckdb

    def answer(folder, target):
        found = duckdb.connect().read_parquet(f"{folder}/*.parquet")
        documents = found.select("id", "text").to_arrow_reader(8192)
        schema = label.schema(documents.schema)
        answers = pyarrow.RecordBatchReader.from_batches(schema, label(documents))  # noqa: F841
        duckdb.sql(f"COPY answers TO '{target}/0.parquet'")

    return answer


WAYS = {"predict": predict, "spark": spark, "ray": ray, "daft": daft, "duckdb": duckdb}

if __name__ == "__main__":
    main()
