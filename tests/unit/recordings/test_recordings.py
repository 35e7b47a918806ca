"""Reading and writing recordings: what is read, what is missing, and what is said about it."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainminder.catalogue import load_catalogue
from trainminder.errors import RecordingError, SettingsError
from trainminder.settings import RecordingSettings
from trainminder.source.recordings import read_recording, read_recordings, write_recording
from trainminder.types import MetricSpec, RawMetric, RawTask

NOW = 1_760_000_000.0
CATALOGUE = load_catalogue()


def save(folder: Path, text: str | bytes, name: str = "llm-7.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def read(path: Path, *declared: str, task: str | None = None, **setting: object) -> RawTask:
    chosen = RecordingSettings.model_validate(setting)
    return read_recording(path, CATALOGUE.with_declared(declared), chosen, task=task)


def refused(path: Path, *declared: str, task: str | None = None, **setting: object) -> str:
    with pytest.raises(RecordingError) as caught:
        read(path, *declared, task=task, **setting)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def series(raw: RawTask, metric: str) -> dict[tuple[str, str | None], list[tuple[float, float]]]:
    """machine, device -> (seconds after NOW, value)."""
    found = next(item for item in raw.metrics if item.metric == metric)
    return {
        (found.machines[i], found.devices[i]): [
            (round(float(t) - NOW, 6), float(v))
            for t, v in zip(found.times[start:end], found.values[start:end], strict=True)
        ]
        for i, (start, end) in enumerate(zip(found.offsets[:-1], found.offsets[1:], strict=True))
    }


def same_bytes(one: RawTask, other: RawTask) -> bool:
    def content(raw: RawTask) -> list[object]:
        arrays = [[m.offsets.tobytes(), m.times.tobytes(), m.values.tobytes()] for m in raw.metrics]
        names = [(m.metric, m.machines, m.devices) for m in raw.metrics]
        return [raw.task, raw.from_at, raw.to_at, raw.machines, dict(raw.groups), raw.metrics_absent, arrays, names]

    return content(one) == content(other) and one.warnings == other.warnings


WIDE = (
    f"timestamp,machine,device,cpu_usage,gpu_power_draw\n"
    f"{NOW:.0f},b,,40,\n{NOW:.0f},b,gpu0,,600\n{NOW + 1:.0f},a,,41,\n"
)


# ---------------------------------------------------------------- the format


def test_wide_rows_become_series_by_machine_and_device(tmp_path: Path) -> None:
    raw = read(save(tmp_path, WIDE))
    assert (raw.task, raw.machines, raw.from_at, raw.to_at) == ("llm-7", ("a", "b"), NOW, NOW + 1)
    assert series(raw, "cpu_usage") == {("a", None): [(1.0, 41.0)], ("b", None): [(0.0, 40.0)]}
    assert series(raw, "gpu_power_draw") == {("b", "gpu0"): [(0.0, 600.0)]}
    assert raw.warnings == ()
    assert "gpu_duty_cycle" in raw.metrics_absent
    assert "cpu_usage" not in raw.metrics_absent
    assert set(raw.specs) == {"cpu_usage", "gpu_power_draw"}


@pytest.mark.parametrize(
    ("name", "encode"),
    [
        ("llm-7.csv", lambda text: b"\xef\xbb\xbf" + text.encode()),
        ("llm-7.csv", lambda text: text.replace("\n", "\r\n").encode()),
        ("llm-7.csv", lambda text: text.replace("\n", "\r").encode()),
        ("llm-7.csv", lambda text: text.replace("\n", "\n\n").encode()),
        ("llm-7.csv", lambda text: text.replace(",", ";").encode()),
        ("llm-7.tsv", lambda text: text.replace(",", "\t").encode()),
        ("llm-7.csv", lambda text: text.replace(",", ", ").encode()),
        ("llm-7.csv", lambda text: text.encode("utf-16")),
        ("llm-7.csv.gz", lambda text: gzip.compress(text.encode())),
    ],
    ids=["bom", "crlf", "cr", "blank lines", "semicolon", "tab", "blanks", "utf-16", "gzip"],
)
def test_every_dialect_of_csv_reads_the_same(tmp_path: Path, name: str, encode: object) -> None:
    plain = read(save(tmp_path, WIDE))
    assert same_bytes(read(save(tmp_path, encode(WIDE), name)), plain)  # type: ignore[operator]


def test_long_rows_read_as_the_wide_ones_do(tmp_path: Path) -> None:
    long = (
        f"timestamp,machine,device,metric,value\n{NOW:.0f},b,,cpu_usage,40\n{NOW:.0f},b,gpu0,gpu_power_draw,600\n"
        f"{NOW + 1:.0f},a,,cpu_usage,41\n"
    )
    assert same_bytes(read(save(tmp_path, long)), read(save(tmp_path, WIDE)))


def test_long_metrics_of_unknown_name_are_named_and_renamed(tmp_path: Path) -> None:
    long = f"timestamp,machine,metric,value\n{NOW},a,cpu_usge,40\n{NOW},b,load,3\n{NOW},a,cpu_usage,2\n"
    raw = read(save(tmp_path, long))
    assert raw.machines == ("a", "b")
    assert "cpu_usge (did you mean cpu_usage?), load" in raw.warnings[0]
    renamed = read(save(tmp_path, long), columns={"load": "cpu_usage", "cpu_usge": "memory_usage"})
    assert series(renamed, "cpu_usage") == {("a", None): [(0.0, 2.0)], ("b", None): [(0.0, 3.0)]}


def test_parquet_reads_as_csv_does(tmp_path: Path) -> None:
    pl.DataFrame(
        {
            "timestamp": [NOW, NOW, NOW + 1],
            "machine": pl.Series(["b", "b", "a"], dtype=pl.Categorical),
            "device": [None, "gpu0", None],
            "cpu_usage": pl.Series([40, None, 41], dtype=pl.Float32),
            "gpu_power_draw": pl.Series([None, 600, None], dtype=pl.Int16),
        }
    ).write_parquet(tmp_path / "llm-7.parquet")
    assert same_bytes(read(tmp_path / "llm-7.parquet"), read(save(tmp_path, WIDE)))


def test_numbers_serve_as_machines_and_devices(tmp_path: Path) -> None:
    frame = pl.DataFrame({"timestamp": [NOW] * 3, "machine": [0.0, 10.0, 2.0], "device": [0, None, 1], "cpu_usage": 1})
    frame.write_parquet(tmp_path / "r.parquet")
    raw = read(tmp_path / "r.parquet")
    assert raw.machines == ("0", "10", "2")
    assert set(series(raw, "cpu_usage")) == {("0", "0"), ("10", None), ("2", "1")}


def test_rows_without_a_machine_or_an_instant_are_dropped_and_counted(tmp_path: Path) -> None:
    raw = read(save(tmp_path, f"timestamp,machine,cpu_usage\n{NOW},,1\n{NOW},n/a,1\n,a,1\n{NOW},a,5\n"))
    assert raw.machines == ("a",)
    assert raw.warnings == ("rows without a machine are dropped: 2", "rows without an instant are dropped: 1")


def test_a_machine_without_a_single_sample_is_still_a_member(tmp_path: Path) -> None:
    assert read(save(tmp_path, f"timestamp,machine,cpu_usage\n{NOW},a,\n{NOW},b,0\n")).machines == ("a", "b")


# ---------------------------------------------------------------- values


def test_zero_is_a_value_and_an_empty_cell_is_none(tmp_path: Path) -> None:
    raw = read(save(tmp_path, f"timestamp,machine,cpu_usage\n{NOW},a,0\n{NOW},b,\n{NOW},c,nan\n"))
    assert series(raw, "cpu_usage") == {("a", None): [(0.0, 0.0)]}
    assert raw.warnings == ()


@pytest.mark.parametrize("word", ["[N/A]", "[Not Supported]", "[Unknown Error]", "[GPU is lost]", "N/A", "-", "null"])
def test_placeholder_words_are_missing_and_the_column_stays_numeric(tmp_path: Path, word: str) -> None:
    raw = read(save(tmp_path, f"timestamp,machine,cpu_usage\n{NOW},a,{word}\n{NOW},b,7.5\n"))
    assert series(raw, "cpu_usage") == {("b", None): [(0.0, 7.5)]}
    assert raw.warnings == (f"cells that say there is no value count as missing: cpu_usage 1 ({word})",)


def test_a_cell_with_its_unit_is_missing_with_an_example_and_the_remedy(tmp_path: Path) -> None:
    raw = read(save(tmp_path, f"timestamp,machine,gpu_power_draw\n{NOW},a,612.39 W\n{NOW},b,7.5\n"))
    assert series(raw, "gpu_power_draw") == {("b", None): [(0.0, 7.5)]}
    assert (
        'column "gpu_power_draw": cells that are no numbers count as missing: 1, such as "612.39 W"' in raw.warnings[0]
    )
    assert "write bare numbers" in raw.warnings[0]


def test_infinite_sentinel_and_impossible_values_are_missing_with_the_machine_named(tmp_path: Path) -> None:
    rows = "".join(f"{NOW},{m},{v}\n" for m, v in zip("abcd", ["inf", "140737488355328", "55", "0.4"], strict=True))
    raw = read(save(tmp_path, f"timestamp,machine,gpu_sm_activity\n{rows}"))
    assert set(series(raw, "gpu_sm_activity")) == {("d", None)}
    assert [line.split(" on ")[-1][0] for line in raw.warnings] == ["a", "b", "c"]
    assert "outside 0..1 ratio" in raw.warnings[2]


def test_a_sentinel_of_the_settings_is_missing(tmp_path: Path) -> None:
    raw = read(save(tmp_path, f"timestamp,machine,loss\n{NOW},a,-999\n{NOW},b,2\n"), "loss", sentinels=[-999])
    assert set(series(raw, "loss")) == {("b", None)}


def test_a_metric_of_which_every_sample_is_missing_is_absent(tmp_path: Path) -> None:
    raw = read(save(tmp_path, f"timestamp,machine,cpu_usage,memory_usage\n{NOW},a,[N/A],3\n"))
    assert [metric.metric for metric in raw.metrics] == ["memory_usage"]
    assert "cpu_usage" in raw.metrics_absent
    assert "cpu_usage: every sample is missing: the metric is left out" in raw.warnings


def test_a_column_of_lists_is_no_metric(tmp_path: Path) -> None:
    pl.DataFrame({"timestamp": [NOW], "machine": ["a"], "cpu_usage": [[1.0]], "memory_usage": [2.0]}).write_parquet(
        tmp_path / "[r]*.parquet"
    )
    raw = read(tmp_path / "[r]*.parquet")
    assert [metric.metric for metric in raw.metrics] == ["memory_usage"]
    assert "List(Float64)" in raw.warnings[0]


# ---------------------------------------------------------------- rows


TWICE = ["1,a,10", "1,a,20", "1,a,20", "2,a,5", "1,b,7", "1,b,7"]


def twice(folder: Path, rows: list[str], duplicates: str = "mean") -> RawTask:
    body = "\n".join(f"{NOW + int(row[0])},{row[2:]}" for row in rows)
    return read(save(folder, f"timestamp,machine,gpu_power_draw\n{body}\n"), duplicates=duplicates)


def test_doubled_rows_take_their_mean_with_one_warning(tmp_path: Path) -> None:
    raw = twice(tmp_path, TWICE)
    assert series(raw, "gpu_power_draw")["a", None] == [(1.0, 15.0), (2.0, 5.0)]
    assert raw.warnings == (
        "instants with several rows of different values: 1, first on a: their mean is taken (recording.duplicates)",
    )


def test_the_last_of_doubled_rows_counts_where_asked(tmp_path: Path) -> None:
    rows = ["1,a,20", "1,a,10", "2,a,5"]
    assert series(twice(tmp_path, rows, duplicates="last"), "gpu_power_draw")["a", None] == [(1.0, 10.0), (2.0, 5.0)]


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.permutations(TWICE))
def test_the_order_of_rows_changes_nothing(tmp_path: Path, rows: list[str]) -> None:
    assert same_bytes(twice(tmp_path, rows), twice(tmp_path, TWICE))


# ---------------------------------------------------------------- columns


def test_unknown_columns_are_named_with_their_kin_and_skipped(tmp_path: Path) -> None:
    raw = read(save(tmp_path, f"timestamp,machine,cpu_usge,step,cpu_usage\n{NOW},a,1,2,3\n"))
    assert [metric.metric for metric in raw.metrics] == ["cpu_usage"]
    assert "cpu_usge (did you mean cpu_usage?), step:" in raw.warnings[0]
    assert "--metric NAME" in raw.warnings[0]


def test_names_are_matched_exactly(tmp_path: Path) -> None:
    assert "CPU_usage" in refused(save(tmp_path, f"timestamp,machine,CPU_usage\n{NOW},a,1\n"))


def test_a_declared_column_is_read(tmp_path: Path) -> None:
    raw = read(save(tmp_path, f"timestamp,machine,step_ms\n{NOW},a,170\n"), "step_ms=ms")
    assert series(raw, "step_ms") == {("a", None): [(0.0, 170.0)]}
    assert raw.specs["step_ms"].unit == "ms"


def test_a_declared_metric_that_is_not_there_is_an_error_naming_its_kin(tmp_path: Path) -> None:
    path = save(tmp_path, f"timestamp,machine,step_time_ms,cpu_usage\n{NOW},a,170,3\n")
    message = refused(path, "step_ms")
    assert 'no column "step_ms"' in message
    assert 'did you mean "step_time_ms"?' in message


def test_columns_are_renamed_by_the_settings(tmp_path: Path) -> None:
    path = save(tmp_path, f"time,node,gpu,power\n{NOW},a,0,600\n")
    columns = {"time": "timestamp", "node": "machine", "gpu": "device", "power": "gpu_power_draw"}
    assert series(read(path, columns=columns), "gpu_power_draw") == {("a", "0"): [(0.0, 600.0)]}


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    path = save(tmp_path, f"timestamp,time,machine,cpu_usage\n{NOW},{NOW},a,1\n")
    assert '"timestamp" and "time"' in refused(path, columns={"time": "timestamp"})
    path = save(tmp_path, f"timestamp,machine,cpu_usage,cpu_usage\n{NOW},a,1,2\n")
    assert '"cpu_usage" twice' in refused(path)


@pytest.mark.parametrize(
    ("header", "key", "near"), [("timestamp,hostname", "machine", "hostname"), ("time,machine", "timestamp", "time")]
)
def test_a_missing_key_column_names_its_kin_and_the_remedy(tmp_path: Path, header: str, key: str, near: str) -> None:
    message = refused(save(tmp_path, f"{header},cpu_usage\n{NOW},a,1\n"))
    assert f'no column "{key}": is it "{near}"?' in message
    assert f"--column {near}={key}" in message
    assert "recording.columns" in message


def test_only_the_wanted_metrics_are_read(tmp_path: Path) -> None:
    path = save(tmp_path, f"timestamp,machine,cpu_usage,memory_usage,x\n{NOW},a,1,2,3\n")
    raw = read_recording(path, CATALOGUE, RecordingSettings(), metrics=["memory_usage", "disk_io"])
    assert [metric.metric for metric in raw.metrics] == ["memory_usage"]
    assert raw.metrics_absent == ("disk_io",)
    assert raw.warnings == ()


def test_an_unknown_wanted_metric_names_its_kin(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match='"cpu_usge" is not in the catalogue: did you mean "cpu_usage"'):
        read_recording(save(tmp_path, WIDE), CATALOGUE, RecordingSettings(), metrics=["cpu_usge"])


def test_no_known_metric_names_what_was_seen_and_the_remedy(tmp_path: Path) -> None:
    message = refused(save(tmp_path, f"timestamp,machine,foo,bar\n{NOW},a,1,2\n"))
    assert "--metric NAME" in message
    assert "foo, bar" in message


# ---------------------------------------------------------------- files


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("r.csv", b"", "is empty"),
        ("r.csv", b"\n\n", "is empty"),
        ("r.csv", b"timestamp,machine,cpu_usage\n", "no rows"),
        ("r.csv", b"\x00\x01\x02\xff\xfe\x00", "not UTF-8 text"),
        ("r.csv", b"timestamp,machine,cpu_usage\n1760000000,\xff\xfe,1\n", "damaged"),
        ("r.csv", b"timestamp,machine,cpu_usage\n1760000000,a,1,2,3\n", "damaged"),
        ("r.csv.gz", gzip.compress(WIDE.encode(), mtime=0)[:-9], "cannot be read"),
        ("r.parquet", b"timestamp,machine\n1,2\n", "not a Parquet file"),
        ("r.parquet", b"PAR1" + bytes(60), "cannot be read"),
        ("r.xlsx", b"PK\x03\x04....", "no known format"),
    ],
)
def test_a_file_that_is_no_recording_is_refused_by_name(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    message = refused(save(tmp_path, content, name))
    assert words in message
    assert name in message


def test_a_truncated_parquet_file_is_refused(tmp_path: Path) -> None:
    pl.DataFrame({"timestamp": [NOW] * 99, "machine": ["a"] * 99, "cpu_usage": 1.0}).write_parquet(
        tmp_path / "a.parquet"
    )
    whole = (tmp_path / "a.parquet").read_bytes()
    assert "cannot be read" in refused(save(tmp_path, whole[: len(whole) // 2], "cut.parquet"))
    assert "damaged" in refused(save(tmp_path, whole[:8] + bytes(40) + whole[48:], "bad.parquet"))


def test_a_missing_file_and_a_folder_without_recordings_are_refused(tmp_path: Path) -> None:
    assert "does not exist" in refused(tmp_path / "none.csv")
    save(tmp_path, "[]", "a.truth.json")
    assert "holds no recording" in refused(tmp_path)


def test_a_row_cut_short_by_a_crash_loses_only_its_missing_cells(tmp_path: Path) -> None:
    raw = read(save(tmp_path, f"timestamp,machine,cpu_usage\n{NOW},a,1\n{NOW},b"))
    assert set(series(raw, "cpu_usage")) == {("a", None)}


def test_a_recording_without_a_single_sample_is_refused(tmp_path: Path) -> None:
    assert "no usable sample" in refused(save(tmp_path, f"timestamp,machine,cpu_usage\n{NOW},a,[N/A]\n"))


def test_names_are_text_or_numbers(tmp_path: Path) -> None:
    pl.DataFrame({"timestamp": [NOW], "machine": [["a"]], "cpu_usage": [1.0]}).write_parquet(tmp_path / "r.parquet")
    assert 'column "machine" is of type List(String)' in refused(tmp_path / "r.parquet")


# ---------------------------------------------------------------- tasks


TASKS = f"timestamp,machine,task,cpu_usage\n{NOW},a,one,1\n{NOW},b,two,2\n{NOW + 1},b,two,3\n"


def test_of_two_tasks_in_a_file_one_must_be_chosen(tmp_path: Path) -> None:
    path = save(tmp_path, TASKS)
    message = refused(path)
    assert "--task NAME: one, two" in message
    assert series(read(path, task="two"), "cpu_usage") == {("b", None): [(0.0, 2.0), (1.0, 3.0)]}
    assert 'no task "tow": did you mean "two"?' in refused(path, task="tow")


def test_a_folder_holds_a_task_per_file_and_labels_are_no_data(tmp_path: Path) -> None:
    save(tmp_path, WIDE, "b.csv")
    save(tmp_path, "[]", "b.truth.json")
    assert read(tmp_path).task == "b"
    save(tmp_path, WIDE, "a.csv")
    assert "--task NAME: a, b" in refused(tmp_path)
    assert read(tmp_path, task="a").task == "a"
    assert [raw.task for raw in read_recordings(tmp_path, CATALOGUE, RecordingSettings())] == ["a", "b"]


def test_a_neighbour_that_is_no_recording_does_not_keep_a_chosen_task_from_being_read(tmp_path: Path) -> None:
    save(tmp_path, WIDE, "a.csv")
    save(tmp_path, "x,y\n1,2\n", "b.csv")
    assert read(tmp_path, task="a").task == "a"


def test_files_that_name_one_task_are_its_parts(tmp_path: Path) -> None:
    save(tmp_path, f"timestamp,machine,task,cpu_usage\n{NOW},b,t,1\n", "a.csv")
    save(tmp_path, f"timestamp,machine,task,memory_usage,cpu_usage\n{NOW + 1},a,t,2,3\n", "b.csv")
    raw = read(tmp_path)
    assert (raw.task, raw.machines) == ("t", ("a", "b"))
    assert series(raw, "cpu_usage") == {("a", None): [(1.0, 3.0)], ("b", None): [(0.0, 1.0)]}
    assert series(raw, "memory_usage") == {("a", None): [(1.0, 2.0)]}


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    save(tmp_path, WIDE, "a.csv")
    save(tmp_path, WIDE, "a.tsv")
    assert 'both hold a task "a"' in refused(tmp_path)


# ---------------------------------------------------------------- groups


def test_the_group_of_most_rows_counts_and_machines_without_one_stand_apart(tmp_path: Path) -> None:
    rows = ["a,0", "a,1", "a,1", "b,0", "c,"]
    body = "".join(f"{NOW + i},{row},1\n" for i, row in enumerate(rows))
    raw = read(save(tmp_path, f"timestamp,machine,group,cpu_usage\n{body}"))
    assert dict(raw.groups) == {"a": "1", "b": "0", "c": "(none)"}
    assert "several groups" in raw.warnings[0]
    assert raw.warnings[0].endswith(": a")
    assert raw.warnings[1].endswith('"(none)": c')


def test_an_empty_group_column_compares_everyone_with_everyone(tmp_path: Path) -> None:
    raw = read(save(tmp_path, f"timestamp,machine,group,cpu_usage\n{NOW},a,,1\n"))
    assert dict(raw.groups) == {}
    assert raw.warnings == ()


# ---------------------------------------------------------------- writing


names = st.text(alphabet="ab01-_.:;, é\"'/[]", min_size=1, max_size=5).filter(
    lambda n: n == n.strip() and n.strip("-[]")
)
devices = st.none() | st.sampled_from(["gpu0", "gpu1", "0", "mlx5_0/1"])
instants = st.floats(NOW - 1e6, NOW + 1e6) | st.integers(0, 2000).map(lambda i: NOW + i)
watts = st.floats(0, 1e6) | st.sampled_from([0.0, 5e-324, 0.1, 1e-7])


@st.composite
def tasks(draw: st.DrawFn) -> RawTask:
    metrics = []
    for name in draw(st.sets(st.sampled_from(["gpu_power_draw", "tcp_throughput", "disk_io"]), min_size=1)):
        value = st.floats(0, 1) if name == "disk_io" else watts
        drawn = draw(
            st.dictionaries(
                st.tuples(names, devices),
                st.dictionaries(instants, value, min_size=1, max_size=5),
                min_size=1,
                max_size=5,
            )
        )
        keys = sorted(drawn, key=lambda key: (key[0], key[1] or ""))
        rows = [sorted(drawn[key].items()) for key in keys]
        metrics.append(
            RawMetric(
                name,
                tuple(key[0] for key in keys),
                tuple(key[1] for key in keys),
                np.cumsum([0, *map(len, rows)]),
                np.array([t for row in rows for t, _ in row]),
                np.array([v for row in rows for _, v in row]),
            )
        )
    metrics.sort(key=lambda metric: list(CATALOGUE).index(metric.metric))
    machines = sorted({m for metric in metrics for m in metric.machines} | draw(st.sets(names, max_size=2)))
    groups = draw(st.just({}) | st.just({machine: f"g{i % 2}" for i, machine in enumerate(machines)}))
    return RawTask(
        "r",
        min(float(metric.times.min()) for metric in metrics),
        max(float(metric.times.max()) for metric in metrics),
        tuple(machines),
        tuple(metrics),
        {metric.metric: CATALOGUE[metric.metric] for metric in metrics},
        groups,
        tuple(name for name in CATALOGUE if name not in {metric.metric for metric in metrics}),
    )


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".csv.gz"])
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(raw=tasks())
def test_what_is_written_reads_back_to_the_byte(tmp_path: Path, ending: str, raw: RawTask) -> None:
    write_recording(raw, tmp_path / f"r{ending}")
    assert same_bytes(read(tmp_path / f"r{ending}"), raw)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def one_machine(name: str = "a") -> RawTask:
    metric = RawMetric("cpu_usage", (name,), (None,), np.array([0, 1]), np.array([NOW]), np.array([1.0]))
    return RawTask("r", NOW, NOW, (name,), (metric,), {"cpu_usage": MetricSpec("cpu_usage", "percent")})


def test_a_recording_is_written_to_a_known_ending_in_a_folder_that_exists(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match=r"use \.parquet, \.csv or \.csv\.gz"):
        write_recording(one_machine(), tmp_path / "r.json")
    with pytest.raises(RecordingError, match="choose a folder that exists"):
        write_recording(one_machine(), tmp_path / "none" / "r.csv")


def test_a_failed_write_leaves_the_old_recording_whole(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    write_recording(one_machine(), path)
    before = path.read_bytes()
    with pytest.raises(RecordingError, match="would not read back"):
        write_recording(one_machine(" a"), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
