"""The calibration of a model on its report and its model card."""

from regard.bundle.model_card import write_model_card
from regard.reports.confidence import confidence_section

BIN = {"outputs": 30, "lowest": 71.2, "highest": 90.4, "confidence": 81.2, "accuracy": 80.0}
ERRORS = {"before": 11.31, "after": 1.84, "floor": 1.12, "bins": [BIN]}
CALIBRATED = {"method": "beta", "outputs": 300, "weights": {}, "errors": ERRORS}


def test_the_report_shows_the_reliability_table():
    page = confidence_section({"calibration": CALIBRATED})
    for text in ("71–90 %", "81.2 %", "80.0 %", "<b>1.8 points</b>", "differ by 11.3", "about 1.1"):
        assert text in page
    assert confidence_section({}) == ""


def test_an_uncalibrated_model_says_why():
    card = {"calibration": {"method": "none", "reason": "it needs <100>"}}
    assert "(it needs &lt;100&gt;)" in confidence_section(card)
    assert "was not calibrated (it needs &lt;100>)" in write_model_card(card, {})
    assert "confidence" not in write_model_card({}, {})


def test_the_model_card_states_the_errors():
    text = write_model_card({"calibration": CALIBRATED}, {})
    assert "calibrated on 300 held-out outputs (method: beta)" in text
    assert "error is 1.8 points; that of the model's own probability is 11.3." in text
