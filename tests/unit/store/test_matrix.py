"""The parser of range answers agrees with an ordinary JSON parser, and refuses what that refuses."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from trainminder.errors import StoreError
from trainminder.source.prometheus.matrix import MatrixAnswer, parse_matrix

HEAD = '{"status":"success","data":{"resultType":"matrix","result":['
FEW = settings(max_examples=150, deadline=None, derandomize=True)


def answer(*values: str, labels: str = '{"instance":"a"}') -> bytes:
    samples = ",".join(f'[{i},"{value}"]' for i, value in enumerate(values))
    return f'{HEAD}{{"metric":{labels},"values":[{samples}]}}]}}}}'.encode()


def slowly(body: bytes) -> MatrixAnswer:
    """The reference: one Python object per sample."""
    result = orjson.loads(body)["data"]["result"]
    lengths = [len(series["values"]) for series in result]
    pairs = [pair for series in result for pair in series["values"]]
    return MatrixAnswer(
        labels=[series["metric"] for series in result],
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        times=np.array([float(pair[0]) for pair in pairs]),
        values=np.array([float(pair[1]) for pair in pairs]),
    )


def assert_same(got: MatrixAnswer, wanted: MatrixAnswer) -> None:
    assert got.labels == wanted.labels
    np.testing.assert_array_equal(got.offsets, wanted.offsets)
    # Bits, not values: the sign of zero and every last digit count.
    np.testing.assert_array_equal(got.times.view(np.int64), wanted.times.view(np.int64))
    nan = np.isnan(wanted.values)
    np.testing.assert_array_equal(np.isnan(got.values), nan)
    np.testing.assert_array_equal(got.values[~nan].view(np.int64), wanted.values[~nan].view(np.int64))


def test_series_of_different_lengths_keep_their_samples() -> None:
    body = (
        f'{HEAD}{{"metric":{{"instance":"a","gpu":"0"}},"values":[[1700000000.5,"1"],[1700000001,"-2.25e-3"]]}},'
        '{"values":[],"metric":{}},{"metric":{"instance":"b"},"values":[[3,"+Inf"],[4,"NaN"],[5,"-Inf"]]}]},'
        '"warnings":["one store\\n did not answer"],"infos":["ok"]}'
    ).encode()
    got = parse_matrix(body)
    assert got.labels == [{"instance": "a", "gpu": "0"}, {}, {"instance": "b"}]
    assert got.offsets.tolist() == [0, 2, 2, 5]
    assert got.times.tolist() == [1700000000.5, 1700000001, 3, 4, 5]
    np.testing.assert_array_equal(got.values, [1, -0.00225, np.inf, np.nan, -np.inf])
    assert got.warnings == ("one store did not answer",)
    assert got.infos == ("ok",)


def test_infinities_and_nan_are_read_however_they_are_written() -> None:
    values = parse_matrix(answer("Inf", "+Inf", "-Inf", "inf", "-INF", "NaN", "nan")).values
    np.testing.assert_array_equal(values, [np.inf, np.inf, -np.inf, np.inf, -np.inf, np.nan, np.nan])


def test_a_label_called_values_or_holding_brackets_is_no_array() -> None:
    labels = '{"values":"[[1,\\"2\\"]]","a\\"values":"\\\\","b":"\\"values\\":[[9,\\"9\\"]]"}'
    got = parse_matrix(answer("1", "2", labels=labels))
    assert got.labels == [{"values": '[[1,"2"]]', 'a"values': "\\", "b": '"values":[[9,"9"]]'}]
    assert got.values.tolist() == [1.0, 2.0]


def test_white_space_and_the_order_of_keys_do_not_matter() -> None:
    body = json.dumps(
        {"data": {"result": [{"values": [[1, "2"], [3, "4"]], "metric": {"x": "y"}}], "resultType": "matrix"}}
        | {"status": "success"},
        indent=3,
    ).encode()
    assert_same(parse_matrix(body), slowly(body))


def test_a_vector_comes_back_as_series_of_one_sample() -> None:
    body = b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{"a":"b"},"value":[7.5,"3"]}]}}'
    got = parse_matrix(body)
    assert (got.labels, got.offsets.tolist(), got.times.tolist(), got.values.tolist()) == (
        [{"a": "b"}],
        [0, 1],
        [7.5],
        [3],
    )


def test_native_histograms_are_no_series_of_samples() -> None:
    body = (
        f'{HEAD}{{"metric":{{"a":"b"}},"histograms":[[1,{{"count":"2"}}]]}},{{"metric":{{}},"values":[[1,"2"]]}}]}}}}'
    )
    got = parse_matrix(body.encode())
    assert got.labels == [{}]
    assert got.values.tolist() == [2.0]


@FEW
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=30))
@example([5e-324, 1.7976931348623157e308, -0.0, 9007199254740993.0, 2.0**63, 0.1 + 0.2, 1e23, 8.5e22])
def test_every_double_is_read_to_the_last_bit(numbers: list[float]) -> None:
    # Go prints the shortest digits, without an exponent: Prometheus does so for every value.
    for texts in ([repr(x) for x in numbers], [format(Decimal(repr(x)), "f") for x in numbers]):
        np.testing.assert_array_equal(
            parse_matrix(answer(*texts)).values.view(np.int64), np.array(numbers).view(np.int64)
        )


@FEW
@given(st.lists(st.tuples(st.integers(0, 10**19 - 1), st.integers(-30, 30)), min_size=1, max_size=30))
@example([(9007199254740993, 0), (9007199254740993, -1), (18014398509481985, 22), (1125899906842624125, -3), (5, -324)])
def test_any_digits_and_exponent_round_as_python_does(parts: list[tuple[int, int]]) -> None:
    texts = [f"{mantissa}e{exponent}" for mantissa, exponent in parts]
    wanted = np.array([float(text) for text in texts])
    np.testing.assert_array_equal(parse_matrix(answer(*texts)).values.view(np.int64), wanted.view(np.int64))


json_labels = st.dictionaries(
    st.sampled_from(["instance", "values", "gpu", 'q"', "é"]), st.text(max_size=8), max_size=3
)
json_values = st.floats().map(lambda x: repr(x).replace("inf", "+Inf").replace("-+", "-").replace("nan", "NaN"))
json_pairs = st.tuples(st.one_of(st.integers(0, 2**40), st.floats(0, 1e12)), json_values)
json_series = st.fixed_dictionaries({"metric": json_labels, "values": st.lists(json_pairs, max_size=6)})


@FEW
@given(st.lists(json_series, max_size=5), st.sampled_from([None, 1]))
def test_the_fast_parser_agrees_with_the_slow_one(series: list[Any], indent: int | None) -> None:
    document = {"status": "success", "data": {"resultType": "matrix", "result": series}}
    body = json.dumps(document, indent=indent).encode()
    assert_same(parse_matrix(body), slowly(body))


@FEW
@given(st.lists(json_series, min_size=1, max_size=3), st.integers(0, 10_000), st.binary(max_size=3), st.integers(0, 4))
def test_a_damaged_body_is_an_error_or_what_json_says_it_is(series: list[Any], at: int, put: bytes, gone: int) -> None:
    body = json.dumps({"status": "success", "data": {"resultType": "matrix", "result": series}}).encode()
    at %= len(body)
    damaged = body[:at] + put + body[at + gone :]
    try:
        got = parse_matrix(damaged)
    except StoreError:
        return
    assert len(got.labels) == len(got.offsets) - 1
    assert got.offsets[-1] == len(got.times) == len(got.values)
    try:
        wanted = slowly(damaged)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        return  # numbers such as 01 are let through: no store prints them
    assert_same(got, wanted)


@pytest.mark.parametrize("length", range(0, len(answer("1.5", "-2e3", "NaN")), 1))
def test_a_body_that_breaks_off_anywhere_is_an_error(length: int) -> None:
    with pytest.raises(StoreError):
        parse_matrix(answer("1.5", "-2e3", "NaN")[:length])


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (answer("x"), "not a matrix of samples: byte"),
        (answer("1e"), "not a matrix"),
        (answer("1."), "not a matrix"),
        (answer("--1"), "not a matrix"),
        (HEAD.encode() + b'{"metric":{},"values":[[1,"2"],]}]}}', "not a matrix"),
        (HEAD.encode() + b'{"metric":{},"values":[[1]]}]}}', "not a matrix"),
        (HEAD.encode() + b'{"metric":{},"values":0}]}}', "not a matrix"),
        (HEAD.encode() + b'{"metric":{},"values":[[1,"2"]],"values":[]}]}}', "outside its series"),
        (HEAD.encode() + b'{"metric":[],"values":[]}]}}', "without a set of labels"),
        (b"[]", "not an object"),
        (b"null", "not an object"),
        (b'{"status":"success"}', "gave no reason"),
        (b'{"status":"error","errorType":"bad_data","error":"parse\\n error"}', "bad_data: parse error"),
        (b'{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}', "'scalar'"),
        (b"<html>", "not JSON"),
        (b"\xff\xfe", "not JSON"),
    ],
)
def test_an_odd_body_says_what_is_odd(body: bytes, says: str) -> None:
    with pytest.raises(StoreError, match=says) as caught:
        parse_matrix(body)
    assert "\n" not in str(caught.value)
