"""Answers of the Prometheus query API, parsed without a Python object per sample.

A compiled scanner walks the bytes once, turns every ``"values": [[instant, "value"], ...]`` straight into
float arrays and leaves its number in its place; what remains (labels, status, warnings) is small and goes
through an ordinary JSON parser. Nothing here talks to a store.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt
import orjson

from trainminder.compiled import compiled
from trainminder.errors import StoreError
from trainminder.types import FloatArray, IntArray

__all__ = ["MatrixAnswer", "parse_matrix", "read_error"]

Bytes = npt.NDArray[np.uint8]
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class MatrixAnswer:
    """Every series of one answer; series ``i`` is ``times[offsets[i]:offsets[i + 1]]``, ``values`` likewise.

    ``times``: Unix seconds, in the store's order. ``values``: as printed by the store, to the last bit; NaN and
    infinities included.
    """

    labels: list[dict[str, str]]
    offsets: IntArray
    times: FloatArray
    values: FloatArray
    warnings: tuple[str, ...] = ()
    infos: tuple[str, ...] = ()


# Powers of ten that a double holds exactly.
_EXACT_POWERS = np.array([float(10**k) for k in range(23)])
_SPLIT = 134217729.0  # 2**27 + 1: splits a double in two halves whose products are exact
_INF, _NAN = float("inf"), float("nan")

# What the scanner answers.
_OK, _CUT, _ODD = 0, 1, 2
# What one number answers: its value stands, or the token needs an exact but slower parser, or it is no number.
_DONE, _HARD, _BAD = 0, 1, 2


@compiled()
def _times_power(mantissa: np.uint64, exponent: int) -> tuple[float, bool]:
    """``mantissa * 10**exponent`` rounded to nearest, |exponent| <= 22; False where rounding is a close call."""
    power = _EXACT_POWERS[abs(exponent)]
    if mantissa <= np.uint64(9007199254740992):
        exact = float(mantissa)
        return (exact * power if exponent >= 0 else exact / power), True
    # Double-double arithmetic: head + tail holds some 100 bits of the result.
    high = float(mantissa >> np.uint64(32)) * 4294967296.0
    low = float(mantissa & np.uint64(0xFFFFFFFF))
    whole = high + low
    rest = (high - whole) + low
    if exponent >= 0:
        head = whole * power
        tail = _product_error(whole, power, head) + rest * power
    else:
        head = whole / power
        product = head * power
        tail = (((whole - product) - _product_error(head, power, product)) + rest) / power
    result = head + tail
    distance = abs((head - result) + tail)
    ulp = np.nextafter(result, _INF) - result
    # Below a power of two the spacing halves: both midpoints are kept clear of.
    return result, distance < 0.2499 * ulp or 0.2501 * ulp < distance < 0.4999 * ulp


@compiled()
def _product_error(a: float, b: float, product: float) -> float:
    """What rounding took from ``a * b``."""
    t = _SPLIT * a
    a_high = t - (t - a)
    a_low = a - a_high
    t = _SPLIT * b
    b_high = t - (t - b)
    b_low = b - b_high
    return ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


@compiled()
def _number(body: Bytes, at: int) -> tuple[int, float, int]:
    """One number at ``at``, as JSON or Go print it: (state, value, index after it)."""
    n = len(body)
    start = at
    sign = 1.0
    if at < n and (body[at] == 45 or body[at] == 43):  # - +
        if body[at] == 45:
            sign = -1.0
        at += 1
    if at + 3 <= n and body[at] > 57:  # Inf, NaN; 32 makes a letter small
        a, b, c = body[at] | 32, body[at + 1] | 32, body[at + 2] | 32
        if a == 105 and b == 110 and c == 102:
            return _DONE, sign * _INF, at + 3
        if at == start and a == 110 and b == 97 and c == 110:
            return _DONE, _NAN, at + 3
    # Past 19 digits the mantissa overflows; the count of digits then sends the token to the exact parser.
    mantissa = np.uint64(0)
    first = at
    while at < n and 48 <= body[at] <= 57:
        mantissa = mantissa * np.uint64(10) + np.uint64(body[at] - 48)
        at += 1
    digits = at - first
    if digits == 0:
        return _BAD, 0.0, at
    exponent = 0
    if at < n and body[at] == 46:
        at += 1
        first = at
        while at < n and 48 <= body[at] <= 57:
            mantissa = mantissa * np.uint64(10) + np.uint64(body[at] - 48)
            at += 1
        exponent = first - at
        if exponent == 0:
            return _BAD, 0.0, at
        digits -= exponent
    if at < n and (body[at] == 101 or body[at] == 69):  # e E
        at += 1
        negative = False
        if at < n and (body[at] == 45 or body[at] == 43):
            negative = body[at] == 45
            at += 1
        power = 0
        any_digit = False
        while at < n and 48 <= body[at] <= 57:
            any_digit = True
            power = min(power * 10 + (body[at] - 48), 100_000)
            at += 1
        if not any_digit:
            return _BAD, 0.0, at
        exponent += -power if negative else power
    if digits > 19 or exponent < -22 or exponent > 22:
        return _HARD, 0.0, at
    value, sure = _times_power(mantissa, exponent)
    return (_DONE if sure else _HARD), sign * value, at


@compiled()
def _space(body: Bytes, at: int) -> int:
    while at < len(body) and (body[at] == 32 or body[at] == 10 or body[at] == 13 or body[at] == 9):
        at += 1
    return at


@compiled()
def _pair(
    body: Bytes, at: int, index: int, times: FloatArray, values: FloatArray, hard: IntArray, hards: int
) -> tuple[int, int, int]:
    """One ``[instant, "value"]``: (state, index after it, number of hard tokens so far)."""
    n = len(body)
    if at >= n or body[at] != 91:
        return _ODD, at, hards
    at = _space(body, at + 1)
    for part in range(2):
        quoted = at < n and body[at] == 34
        if quoted:
            at += 1
        start = at
        state, value, at = _number(body, at)
        if state == _BAD:
            return _ODD, at, hards
        if state == _HARD:
            hard[hards, 0] = 2 * index + part
            hard[hards, 1] = start
            hard[hards, 2] = at
            hards += 1
        if part == 0:
            times[index] = value
        else:
            values[index] = value
        if quoted:
            if at >= n or body[at] != 34:
                return _ODD, at, hards
            at += 1
        at = _space(body, at)
        if at >= n or body[at] != (44 if part == 0 else 93):
            return _ODD, at, hards
        at = at + 1 if part == 1 else _space(body, at + 1)
    return _OK, at, hards


@compiled()
def _scan(
    body: Bytes, skeleton: Bytes, times: FloatArray, values: FloatArray, ends: IntArray, hard: IntArray
) -> tuple[int, int, int, int, int, int]:
    """Split a body in arrays and skeleton.

    Returns: (state, position, arrays found, samples, bytes of skeleton, hard tokens). State _CUT with as many
    hard tokens or arrays as there is room for asks for more room.
    """
    n = len(body)
    at = 0
    out = 0
    arrays = 0
    count = 0
    hards = 0
    while at < n:
        c = body[at]
        if c != 34:
            skeleton[out] = c
            out += 1
            at += 1
            continue
        start = at
        at += 1
        while at < n and body[at] != 34:
            at += 2 if body[at] == 92 else 1  # a backslash hides the next byte
        if at >= n:
            return _CUT, n, arrays, count, out, hards
        at += 1
        for i in range(start, at):
            skeleton[out] = body[i]
            out += 1
        if not (
            at - start == 8
            and body[start + 1] == 118
            and body[start + 2] == 97
            and body[start + 3] == 108
            and body[start + 4] == 117
            and body[start + 5] == 101
            and body[start + 6] == 115
        ):
            continue
        colon = _space(body, at)
        if colon >= n or body[colon] != 58:
            continue  # a string that reads "values", not a key
        opening = _space(body, colon + 1)
        if opening >= n:
            return _CUT, n, arrays, count, out, hards
        if body[opening] == 34:
            continue  # a label of that name
        if body[opening] != 91:
            return _ODD, opening, arrays, count, out, hards
        if arrays == len(ends):
            return _CUT, opening, arrays, count, out, hards
        at = _space(body, opening + 1)
        if at < n and body[at] == 93:
            at += 1
        else:
            while True:
                if hards + 2 > len(hard):
                    return _CUT, at, arrays, count, out, hards
                state, at, hards = _pair(body, at, count, times, values, hard, hards)
                if state != _OK:
                    return (_CUT if at >= n else _ODD), at, arrays, count, out, hards
                count += 1
                at = _space(body, at)
                if at >= n:
                    return _CUT, n, arrays, count, out, hards
                if body[at] == 93:
                    at += 1
                    break
                if body[at] != 44:
                    return _ODD, at, arrays, count, out, hards
                at = _space(body, at + 1)
        skeleton[out] = 58
        out += 1
        digits = 1
        while 10**digits <= arrays:
            digits += 1
        for i in range(digits):
            skeleton[out] = 48 + (arrays // 10 ** (digits - 1 - i)) % 10
            out += 1
        ends[arrays] = count
        arrays += 1
    return _OK, at, arrays, count, out, hards


def _split(body: bytes) -> tuple[bytes, FloatArray, FloatArray, IntArray]:
    """Skeleton, times, values and offsets of a body."""
    data = np.frombuffer(body, dtype=np.uint8)
    # The shortest sample is [0,0] and a comma; pages that are never written cost nothing.
    room = len(body) // 6 + 2
    times, values = np.empty(room), np.empty(room)
    # An empty array may grow by the digits of its number: [] is 2 bytes, and so is the shortest label set around it.
    skeleton = np.empty(2 * len(body) + 16, dtype=np.uint8)
    ends = np.empty(len(body) // 11 + 2, dtype=np.int64)
    rooms = 1024
    while True:
        hard = np.empty((rooms, 3), dtype=np.int64)
        state, position, arrays, count, out, hards = _scan(data, skeleton, times, values, ends, hard)
        if state != _CUT or hards + 2 <= rooms or position >= len(body):
            break
        rooms = min(rooms * 16, 2 * room)
    if state == _CUT:
        raise StoreError(
            f"the store's answer breaks off after {len(body)} bytes: try again, or ask for a shorter range"
        )
    if state == _ODD:
        near = body[max(0, position - 20) : position + 20].decode("utf-8", "replace")
        raise StoreError(
            f"the store's answer is not a matrix of samples: byte {position} is unexpected, near {near!r}: "
            "is this a Prometheus API?"
        )
    for which, start, end in hard[:hards].tolist():
        (values if which % 2 else times)[which // 2] = float(body[start:end])
    offsets = np.zeros(arrays + 1, dtype=np.int64)
    offsets[1:] = ends[:arrays]
    return skeleton[:out].tobytes(), times[:count].copy(), values[:count].copy(), offsets


def parse_matrix(body: bytes) -> MatrixAnswer:
    """Parse the answer of a range query or of an instant query (matrix, vector).

    A vector comes out as series of one sample each.

    Raises:
        StoreError: the body is cut short, is not the JSON expected, or says that the query failed.
    """
    skeleton, times, values, offsets = _split(body)
    answer = _load(skeleton)
    data = answer.get("data")
    if answer.get("status") != "success" or not isinstance(data, dict):
        raise StoreError(f"the store refused the query: {read_error(skeleton) or 'it gave no reason'}")
    kind, result = data.get("resultType"), data.get("result")
    if kind not in ("matrix", "vector") or not isinstance(result, list):
        raise StoreError(f"the store answered with {kind!r} where a matrix or a vector was asked for")
    if not all(isinstance(item, dict) for item in result):
        raise StoreError("the store's answer holds a series that is no object: is this a Prometheus API?")
    if kind == "vector":
        times, values, offsets = _vector(result)
    else:
        # A series of native histograms alone has no values: it is no series for us.
        result = [item for item in result if "values" in item]
        if [item["values"] for item in result] != list(range(len(offsets) - 1)):
            raise StoreError("the store's answer holds samples outside its series: is this a Prometheus API?")
    return MatrixAnswer(
        labels=[_labels(item) for item in result],
        offsets=offsets,
        times=times,
        values=values,
        warnings=_texts(answer.get("warnings")),
        infos=_texts(answer.get("infos")),
    )


def read_error(body: bytes) -> str | None:
    """The text of an error answer (``errorType: error``), or None where the body is none."""
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(answer, dict) or not isinstance(answer.get("error"), str):
        return None
    kind = answer.get("errorType")
    text = " ".join(answer["error"].split())
    return f"{kind}: {text}" if isinstance(kind, str) and kind else text


def _load(skeleton: bytes) -> dict[str, Any]:
    try:
        answer = orjson.loads(skeleton)
    except orjson.JSONDecodeError as error:
        raise StoreError(f"the store's answer is not JSON ({error}): is this a Prometheus API?") from error
    if not isinstance(answer, dict):
        raise StoreError(
            f"the store's answer is a JSON {type(answer).__name__}, not an object: is this a Prometheus API?"
        )
    return answer


def _vector(result: list[dict[str, Any]]) -> tuple[FloatArray, FloatArray, IntArray]:
    result[:] = [item for item in result if "value" in item]
    try:
        times = np.array([float(item["value"][0]) for item in result], dtype=np.float64)
        values = np.array([float(item["value"][1]) for item in result], dtype=np.float64)
    except (TypeError, ValueError, IndexError, KeyError, OverflowError) as error:
        raise StoreError(f"the store's answer holds a sample that is no number: {error}") from error
    return times, values, np.arange(len(result) + 1, dtype=np.int64)


def _labels(item: dict[str, Any]) -> dict[str, str]:
    labels = item.get("metric")
    if not isinstance(labels, dict) or not all(isinstance(value, str) for value in labels.values()):
        raise StoreError("the store's answer holds a series without a set of labels: is this a Prometheus API?")
    return cast(dict[str, str], labels)


def _texts(texts: Any) -> tuple[str, ...]:
    return tuple(" ".join(str(text).split()) for text in texts) if isinstance(texts, list) else ()
