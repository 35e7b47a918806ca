"""What the sentence and the terminal table say."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable

from rich.console import Console
from rich.text import Text

from trainminder.report import print_result, verdict_sentence
from trainminder.report.evidence import against_peers
from trainminder.types import PassResult

PassMaker = Callable[..., PassResult]


def printed(result: PassResult, *, width: int = 80, is_terminal: bool = False) -> str:
    out = io.StringIO()
    print_result(result, Console(file=out, width=width, force_terminal=is_terminal or None))
    return out.getvalue()


def test_a_faulty_machine_is_named_with_its_device_metric_onset_and_score(a_pass: PassMaker) -> None:
    assert verdict_sentence(a_pass()) == (
        "task llm-7: machine gpu-03 (gpu5) is faulty: pcie_bandwidth has stood out since 10:35:00 UTC "
        "(for 241 s) at normal score 12.3 (threshold 5.1)"
    )


def test_a_machine_level_verdict_names_no_device(a_pass: PassMaker) -> None:
    assert "machine gpu-03 is faulty: " in verdict_sentence(a_pass(device=None))


def test_a_known_fault_type_is_named(a_pass: PassMaker) -> None:
    result = a_pass()
    verdict = dataclasses.replace(result.verdicts[0], fault_type="PCIe downgrading")
    sentence = verdict_sentence(dataclasses.replace(result, verdicts=(verdict,)))
    assert "machine gpu-03 (gpu5) is faulty (PCIe downgrading): " in sentence


def test_no_verdict_says_how_many_machines_were_compared_and_for_how_long(a_pass: PassMaker) -> None:
    sentence = verdict_sentence(a_pass(machines=64, status="none", seconds=900))
    assert sentence == "task llm-7: no machine stands out among 64 over 900 s"


def test_an_unseen_machine_is_not_counted_among_those_that_do_not_stand_out(a_pass: PassMaker) -> None:
    result = a_pass(status="none")
    coverage = dataclasses.replace(result.coverage, machines_seen=14)
    sentence = verdict_sentence(dataclasses.replace(result, coverage=coverage))
    assert "no machine stands out among the 14 seen of 16" in sentence


def test_an_unknown_verdict_gives_its_reason(a_pass: PassMaker) -> None:
    result = a_pass(status="unknown", reason="only 2 of 3 machines gave samples", traces=False)
    assert verdict_sentence(result) == "task llm-7: unknown: only 2 of 3 machines gave samples"


def test_several_faulty_machines_are_counted_and_the_first_three_named(a_pass: PassMaker) -> None:
    result = a_pass()
    verdicts = tuple(dataclasses.replace(result.verdicts[0], machine=f"gpu-{index:02d}") for index in range(5))
    sentence = verdict_sentence(dataclasses.replace(result, verdicts=verdicts))
    assert sentence.startswith("task llm-7: 5 machines are faulty: gpu-00 (gpu5): pcie_bandwidth has stood out")
    assert "gpu-02" in sentence
    assert "gpu-03" not in sentence
    assert sentence.endswith("; and 2 more")


def test_an_onset_on_an_earlier_day_carries_its_date(a_pass: PassMaker) -> None:
    result = a_pass()
    late = dataclasses.replace(result, to_at=result.to_at + 86_400)
    assert "since 2026-03-01 10:35:00 UTC" in verdict_sentence(late)


def test_the_sentence_is_one_line_whatever_the_names_hold(a_pass: PassMaker) -> None:
    names = ["a", "b", "c", "bad\nname\x1b[31m\u202e\ud800\u2028"]
    sentence = verdict_sentence(a_pass(machines=names, task="t\r\x07"))
    assert r"bad\nname\x1b[31m\u202e\ud800\u2028" in sentence
    assert r"task t\r\x07:" in sentence
    assert sentence.isprintable()


def test_the_table_fits_eighty_columns_with_long_names(a_pass: PassMaker) -> None:
    names = [f"ip-10-120-33-{index}.eu-central-1.compute.internal" for index in range(4)]
    text = printed(a_pass(machines=names, metric="gpu_memory_bandwidth_of_the_device"), is_terminal=True)
    assert max(map(len, Text.from_ansi(text).plain.splitlines())) <= 80


def test_the_table_shows_since_score_value_and_peers_with_unit(a_pass: PassMaker) -> None:
    text = printed(a_pass())
    row = next(line for line in text.splitlines() if line.startswith("gpu-03"))
    assert row.split() == ["gpu-03", "gpu5", "pcie_bandwidth", "10:35:00", "12.3", "4.07", "GB/s"]
    assert "peers 12.2 GB/s" in text


def test_off_a_terminal_there_is_no_colour_and_each_sentence_stays_on_one_line(a_pass: PassMaker) -> None:
    result = a_pass(warnings=["a warning long enough to be wrapped " * 5])
    lines = printed(result).splitlines()
    assert lines[0] == verdict_sentence(result)
    assert "\x1b" not in "".join(lines)
    assert sum(line.startswith("warning: ") for line in lines) == 1


def test_markup_in_a_name_prints_as_it_is(a_pass: PassMaker) -> None:
    result = a_pass(machines=["[red]a[/red]", "[/]", ":skull:", "[b]x"], warnings=["[link=http://x]y"])
    text = printed(result)
    assert "machine [b]x (gpu5) is faulty" in text
    assert "warning: [link=http://x]y" in text


def test_coverage_names_the_absent_metrics(a_pass: PassMaker) -> None:
    assert (
        "coverage: 16 of 16 machines seen, 0.3 % of samples missing, 2 metrics used, 2 absent: cnp_packet_rate, "
        "pfc_tx_packet_rate\n"
    ) in printed(a_pass())


def test_close_values_are_told_apart() -> None:
    assert against_peers(98.21, 98.24, "percent") == "98.21 %, peers 98.24 %"


def test_a_missing_value_is_said_and_never_zero() -> None:
    assert against_peers(None, 0.0, "ratio") == "no sample, peers 0"
    assert against_peers(0.0, None, "ratio") == "0, no peers"
