from __future__ import annotations

import trainminder


def test_the_public_names_are_these_and_each_can_be_had() -> None:
    assert trainminder.__all__ == [
        "DetectSettings",
        "PassResult",
        "RawTask",
        "Settings",
        "TaskStream",
        "TrainminderError",
        "Verdict",
        "__version__",
        "load_catalogue",
        "load_model",
        "load_settings",
        "read_recording",
        "run_pass",
        "verdict_sentence",
        "write_recording",
        "write_report",
    ]
    assert [name for name in trainminder.__all__ if getattr(trainminder, name) is None] == []
