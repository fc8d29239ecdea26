#!/usr/bin/env python3
"""The SQL of this folder over the data of 1,000 hosts, on a real Spark cluster of which a worker is killed meanwhile, and in DuckDB.

    fleet/test.py --nopal PATH [--hosts 1000] [--duckdb-only]

`./x test fleet` runs it. A generator plans durations and so the answers; its files have the columns of those that `nopal export
--dataset` writes, which is checked. The cluster is a master and two workers, each a JVM of its own, on loopback. Exit code 1 if an
answer is not the planned one.
"""
import argparse, collections, importlib.util, os, pathlib, random, re, signal, subprocess, sys, threading, time

ROOT = pathlib.Path(__file__).resolve().parents[1]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
PACKAGES = ["pyspark==4.0.1", "duckdb==2.0.0", "pyarrow==26.0.1"]
DAY, DAY_NS = "2026-11-16", 20_773 * 86_400_000_000_000
MINUTE_NS = 60_000_000_000
SPANS = {"web:request": (20_000, 1.2), "db:query": (3_000, 0.8), "db:commit": (150, 0.3)}
N_SPANS = 60
children = []


def in_venv():
    """Runs this script again by a Python that has the packages."""
    folder = TARGET / "lab/fleet-python"
    stamp = folder / ".packages"
    if not stamp.exists() or stamp.read_text() != " ".join(PACKAGES):
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        subprocess.run([folder / "bin/pip", "install", "--quiet", *PACKAGES], check=True)
        stamp.write_text(" ".join(PACKAGES))
    os.execv(folder / "bin/python", [str(folder / "bin/python"), *sys.argv])


def bucket_of(ns):
    """The least and the greatest value of a bucket: 64 to each power of two."""
    if ns < 64:
        return ns, ns
    shift = ns.bit_length() - 7
    low = ns >> shift << shift
    return low, low + (1 << shift) - 1


def recorded(nopal, folder):
    """A dataset that nopal itself wrote, of one real recording."""
    program, recording, dataset = folder / "spans", folder / "rec", folder / "real"
    source = ROOT / "tests/fixtures/targets"
    subprocess.run(["cc", "-O2", "-pthread", "-I", ROOT / "include", "-o", program, source / "spans.c"], check=True)
    record = [nopal, "record", "-e", "plan:*", "--provider", source / "spans.d", "-o", recording, "--", program, folder / "plan"]
    subprocess.run(record, check=True, stderr=subprocess.DEVNULL)
    export = [nopal, "export", recording, "--to", "parquet", "--dataset", dataset, "--spans", source / "spans.toml"]
    subprocess.run(export, check=True, stderr=subprocess.DEVNULL)
    return dataset


def generate(dataset, n_hosts, schema):
    """Writes the histograms and events of all hosts; gives what must come out."""
    import pyarrow, pyarrow.parquet

    durations, errors, events = collections.defaultdict(list), collections.Counter(), {}
    for number in range(n_hosts):
        host, chance = f"host-{number:04}", random.Random(number)
        rows = {}
        for span, (middle_us, spread) in SPANS.items():
            for n in range(N_SPANS):
                ns = int(chance.lognormvariate(0, spread) * middle_us * 1000)
                has_failed = chance.random() < 0.02
                durations[span].append(ns)
                errors[span] += has_failed
                low, high = bucket_of(ns)
                place = (span, "", DAY_NS + chance.randrange(5) * MINUTE_NS, low, high)
                count, total, longest, failed = rows.get(place, (0, 0, 0, 0))
                rows[place] = (count + 1, total + ns, max(longest, ns), failed + has_failed)
        columns = list(zip(*(place + sums for place, sums in rows.items())))
        table = pyarrow.table([pyarrow.array(c, t) for c, t in zip(columns, schema.types)], schema=schema)
        to = dataset / f"histograms/host={host}/day={DAY}"
        to.mkdir(parents=True)
        pyarrow.parquet.write_table(table, to / "part-0-1.parquet")
        n_events = chance.randrange(1, 20)
        to = dataset / f"events/host={host}/day={DAY}/event=web%3Arequest__start"
        to.mkdir(parents=True)
        column = pyarrow.array(range(n_events), pyarrow.int64())
        pyarrow.parquet.write_table(pyarrow.table({"ts": column, "cpu": column, "pid": column, "tid": column}), to / "part-0-0.parquet")
        events[host, DAY, "web:request__start"] = n_events
    return durations, errors, events


def check(rows, plan, what):
    durations, errors, _ = plan
    assert [row[0] for row in rows] == sorted(durations), (what, rows)
    for span, spans, failed, total, p50, p90, p99, longest in rows:
        values = sorted(durations[span])
        exact = (len(values), errors[span], sum(values), max(values))
        assert (int(spans), int(failed), int(total), int(longest)) == exact, (what, span, spans, failed, total, longest, exact)
        for got, share in ((p50, 0.5), (p90, 0.9), (p99, 0.99)):
            wanted = values[-(-len(values) * int(share * 100) // 100) - 1]
            assert abs(float(got) - wanted) <= wanted / 64, (what, span, share, got, wanted)
    print(f"{what}: {len(rows)} rows as planned, {sum(len(values) for values in durations.values())} spans", flush=True)


def check_events(rows, plan, what):
    found = {(host, str(day), event): n for host, day, event, n in rows}
    assert found == plan[2], (what, len(found), len(plan[2]))
    print(f"{what}: {len(found)} counts of events as planned", flush=True)


def duckdb_answers(dataset, plan):
    import duckdb

    for table in ("histograms", "events"):
        duckdb.sql(f"CREATE VIEW {table} AS SELECT * FROM read_parquet('{dataset}/{table}/**/*.parquet', hive_partitioning = true, union_by_name = true)")
    check(duckdb.sql((ROOT / "fleet/quantiles.sql").read_text()).fetchall(), plan, "DuckDB")
    check_events(duckdb.sql((ROOT / "fleet/events.sql").read_text()).fetchall(), plan, "DuckDB")


def start(folder, name, *arguments):
    """A part of the cluster, with a group of processes of its own, as workers start others."""
    import pyspark

    home = pathlib.Path(pyspark.__file__).parent
    log = open(folder / f"{name}.log", "w")
    environment = dict(os.environ, SPARK_HOME=str(home), SPARK_LOCAL_IP="127.0.0.1", SPARK_WORKER_DIR=str(folder / name))
    environment["PYSPARK_PYTHON"] = sys.executable
    child = subprocess.Popen(
        [home / "bin/spark-class", *arguments], stdout=log, stderr=subprocess.STDOUT, env=environment, start_new_session=True
    )
    children.append(child)
    return child


def said(folder, name, pattern, seconds=180):
    end = time.monotonic() + seconds
    while not (found := re.search(pattern, (folder / f"{name}.log").read_text())):
        assert time.monotonic() < end, (folder / f"{name}.log").read_text()[-3000:]
        time.sleep(0.2)
    return found


def stop(child):
    """Only what this script started: the group has no other member."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.wait()


def spark_answers(folder, dataset, plan):
    from pyspark.sql import SparkSession

    start(folder, "master", "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    url = said(folder, "master", r"(spark://127\.0\.0\.1:\d+)")[1]
    workers = []
    for name in ("worker1", "worker2"):
        worker = ["org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", "0", url]
        workers.append(start(folder, name, *worker))
    for name in ("worker1", "worker2"):
        said(folder, name, "Successfully registered with master")
    spark = (
        SparkSession.builder.master(url)
        .appName("nopal fleet")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.executor.memory", "600m")
        .config("spark.executor.cores", "1")
        # Few files to a task, so that a query has many.
        .config("spark.sql.files.maxPartitionBytes", "16m")
        .config("spark.sql.files.minPartitionNum", "250")
        .config("spark.sql.shuffle.partitions", "8")
        .config("spark.network.timeout", "60s")
        .config("spark.executor.heartbeatInterval", "5s")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    for table in ("histograms", "events"):
        spark.read.option("mergeSchema", "true").parquet(str(dataset / table)).createOrReplaceTempView(table)
    tracker = spark.sparkContext._jsc.sc().statusTracker()
    n_executors = lambda: len(tracker.getExecutorInfos()) - 1
    end = time.monotonic() + 180
    while n_executors() < 2:
        assert time.monotonic() < end, "the workers started no executors"
        time.sleep(0.2)
    query = (ROOT / "fleet/quantiles.sql").read_text()
    check(spark.sql(query).collect(), plan, "Spark")
    check_events(spark.sql((ROOT / "fleet/events.sql").read_text()).collect(), plan, "Spark")

    # Again, and a worker is killed with its executor while tasks are under way.
    answer = []
    asking = threading.Thread(target=lambda: answer.append(spark.sql(query).collect()))
    asking.start()
    killed_at = None
    python_tracker = spark.sparkContext.statusTracker()
    while asking.is_alive() and killed_at is None:
        for stage in python_tracker.getActiveStageIds():
            info = python_tracker.getStageInfo(stage)
            if info and info.numTasks > 50 and 5 <= info.numCompletedTasks < info.numTasks // 2:
                stop(workers[0])
                killed_at = (info.numCompletedTasks, info.numTasks)
                break
        time.sleep(0.01)
    asking.join(600)
    assert killed_at and answer, (killed_at, "the query was over before a worker could be killed" if not killed_at else "no answer")
    check(answer[0], plan, f"Spark, a worker killed after {killed_at[0]} of {killed_at[1]} tasks")
    end = time.monotonic() + 120
    while n_executors() > 1:
        assert time.monotonic() < end, "the killed worker's executor is still there"
        time.sleep(0.5)
    spark.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nopal", type=pathlib.Path, required=True)
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--duckdb-only", action="store_true", help="without Spark")
    args = parser.parse_args()
    needed = ["duckdb", "pyarrow"] + ([] if args.duckdb_only else ["pyspark"])
    if not all(importlib.util.find_spec(name) for name in needed):
        in_venv()
    import pyarrow.parquet, tempfile

    with tempfile.TemporaryDirectory(prefix="nopal-fleet-") as folder:
        folder = pathlib.Path(folder)
        real = recorded(args.nopal, folder)
        schema = pyarrow.parquet.read_schema(next((real / "histograms").rglob("*.parquet"))).remove_metadata()
        print(f"columns of histograms, as nopal writes them: {', '.join(schema.names)}", flush=True)
        plan = generate(folder / "lake", args.hosts, schema)
        duckdb_answers(folder / "lake", plan)
        if not args.duckdb_only:
            try:
                spark_answers(folder, folder / "lake", plan)
            finally:
                for child in children:
                    stop(child)


if __name__ == "__main__":
    main()
