"""Both ends of the call into layout-detection, against each other and against faults."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest

from hps.document import Detections, Image
from hps.errors import BackendError, NotEnabled, Unavailable
from hps.layout.detector import Finish
from hps.layout.page_inputs import Bounded, Grid, LayoutInput, PageInputs
from hps.triton.bls import BlsLayoutDetector, polygon_table, polygons_of_rows
from hps.triton.layout_model import LayoutModel
from tests.unit.triton.fake_pb_utils import InferenceResponse, PbUtils, Request, Tensor, TritonError


class Backend:
    """One box a page, whose class is the brightness of the page; fails early for brightness 13, late for 17."""

    def __init__(self, *, is_complete: bool = True) -> None:
        form = Bounded(100)
        self.inputs = PageInputs(form, form, form) if is_complete else PageInputs(form)
        self.batches: list[int] = []

    def detect(self, pages: Sequence[LayoutInput]) -> list[Finish]:
        self.batches.append(len(pages))
        if any(page.image[0, 0, 0] == 13 for page in pages):
            raise ValueError("text of a document")
        return [partial(self._of, float(page.image[0, 0, 0]), page.width, page.height) for page in pages]

    def orientations(self, pages: Sequence[LayoutInput]) -> list[int]:
        return [90 for _ in pages]

    def grids(self, pages: Sequence[LayoutInput]) -> list[Grid]:
        return [np.full((3, 2, 2), page.image[0, 0, 0], np.float32) for page in pages]

    def _of(self, brightness: float, width: int, height: int) -> Detections:
        if brightness == 17:
            raise ValueError("text of a document")
        if brightness == 0:
            return Detections(np.zeros((0, 7), np.float32))
        rows = np.array([[brightness, 0.5, 0, 0, width, height, 0]], np.float32)
        return Detections(rows, (np.array([[0, 0], [width, 0], [0, height]], np.float32),))


def page(brightness: int, width: int = 40, height: int = 30) -> Image:
    return np.full((height, width, 3), brightness, np.uint8)


def answers(requests: list[Request], backend: Backend | None = None) -> list[InferenceResponse]:
    """What a layout model sends to each request of a batch: exactly one answer."""
    model = LayoutModel(PbUtils(), lambda: backend or Backend(), ThreadPoolExecutor(2))
    model.execute(requests)
    model.close()
    return [request.sender.response() for request in requests]


def joined(backend: Backend) -> BlsLayoutDetector:
    """A detector whose calls go straight to a layout model."""
    return BlsLayoutDetector(PbUtils(lambda inputs: answers([Request(inputs)], backend)[0]), backend.inputs)


def model_request(brightness: int, token: int = 7, task: int = 0) -> Request:
    inputs = {
        "image": page(brightness)[np.newaxis],
        "size": np.array([[40, 30]], np.int32),
        "token": np.array([[token]], np.uint64),
        "task": np.array([[task]], np.int32),
    }
    return Request(inputs)


async def test_boxes_and_polygons_come_back_in_page_pixels() -> None:
    detections = await joined(Backend()).detect(page(5, width=400, height=300))
    assert detections.rows.tolist() == [[5, 0.5, 0, 0, 400, 300, 0]]
    assert [polygon.tolist() for polygon in detections.polygons] == [[[0, 0], [400, 0], [0, 300]]]


async def test_a_page_without_boxes_is_no_error() -> None:
    detections = await joined(Backend()).detect(page(0))
    assert detections.rows.shape == (0, 7)
    assert detections.polygons == ()


async def test_large_pages_are_sent_bounded() -> None:
    shapes = []

    def answer(inputs: dict[str, Any]) -> InferenceResponse:
        shapes.append((inputs["image"].shape, inputs["image"].dtype, inputs["size"].tolist()))
        return answers([Request(inputs)])[0]

    await BlsLayoutDetector(PbUtils(answer), Backend().inputs).detect(page(5, width=400, height=300))
    assert shapes == [((1, 75, 100, 3), np.uint8, [[400, 300]])]


async def test_orientation_is_asked_of_the_same_model() -> None:
    assert await joined(Backend()).orientation(page(5)) == 90


async def test_a_grid_comes_back_as_it_is() -> None:
    assert (await joined(Backend()).grid(page(5))).tolist() == np.full((3, 2, 2), 5).tolist()


async def test_tasks_that_the_backend_lacks_are_refused() -> None:
    with pytest.raises(NotEnabled, match="orientation"):
        await joined(Backend(is_complete=False)).orientation(page(5))
    with pytest.raises(NotEnabled, match="unwarping"):
        await joined(Backend(is_complete=False)).grid(page(5))


async def test_the_answer_to_another_call_is_not_taken() -> None:
    def answer(inputs: dict[str, Any]) -> InferenceResponse:
        inputs["token"] = inputs["token"] ^ np.uint64(1)
        return answers([Request(inputs)])[0]

    with pytest.raises(BackendError):
        await BlsLayoutDetector(PbUtils(answer), Backend().inputs).detect(page(5))


@pytest.mark.parametrize("brightness", [13, 17])
async def test_a_failed_page_is_a_backend_error(brightness: int) -> None:
    with pytest.raises(BackendError):
        await joined(Backend()).detect(page(brightness))


@pytest.mark.parametrize("code", [None, TritonError.UNAVAILABLE, TritonError.INTERNAL])
async def test_a_model_that_is_away_or_whose_process_died_is_unavailable(code: int | None) -> None:
    def answer(inputs: dict[str, Any]) -> InferenceResponse:
        if code is None:
            raise RuntimeError("model 'layout-detection' is not ready")
        return InferenceResponse([], TritonError("as Triton says it", code))

    with pytest.raises(Unavailable):
        await BlsLayoutDetector(PbUtils(answer), Backend().inputs).detect(page(5))


def test_a_bad_page_of_a_batch_fails_alone() -> None:
    backend = Backend()
    responses = answers([model_request(1), model_request(13), model_request(3)], backend)
    assert [response.has_error() for response in responses] == [False, True, False]
    assert [response.tensors["rows"].as_numpy()[0, 0, 0] for response in responses if not response.has_error()] == [
        1,
        3,
    ]
    assert backend.batches == [3, 1, 1, 1]


def test_an_unreadable_request_of_a_batch_fails_alone() -> None:
    broken = model_request(1)
    broken.inputs["image"] = Tensor("image", np.zeros((1, 0, 5, 3), np.uint8))
    responses = answers([broken, model_request(2), model_request(1, task=9)])
    assert [response.has_error() for response in responses] == [True, False, True]


def test_all_tasks_may_meet_in_a_batch() -> None:
    backend = Backend()
    requests = [model_request(1, token=1, task=1), model_request(2, token=2), model_request(3, token=3, task=2)]
    responses = answers([*requests, model_request(4, token=4)], backend)
    assert [int(response.tensors["token_out"].as_numpy()[0, 0]) for response in responses] == [1, 2, 3, 4]
    assert [int(response.tensors["angle"].as_numpy()[0, 0]) for response in responses] == [90, 0, 0, 0]
    assert [response.tensors["grid"].as_numpy().size for response in responses] == [0, 0, 12, 0]
    assert backend.batches == [2]


def test_batches_and_their_pages_are_counted() -> None:
    pb_utils = PbUtils()
    model = LayoutModel(pb_utils, Backend, ThreadPoolExecutor(1))
    model.execute([model_request(1), model_request(2), model_request(3)])
    model.execute([model_request(1)])
    model.close()
    counts = {family.name: family.metric.value for family in pb_utils.families}
    assert counts == {"hps_layout_batches_total": 2, "hps_layout_pages_total": 4}


def test_polygons_survive_their_table() -> None:
    polygons = tuple(np.random.default_rng(1).random((k, 2)).astype(np.float32) for k in (4, 3, 9))
    table = polygon_table(Detections(np.zeros((3, 7), np.float32), polygons))
    assert table.shape == (16, 3)
    back = polygons_of_rows(table, 3)
    assert all(np.array_equal(a, b) for a, b in zip(polygons, back, strict=True))
    assert polygons_of_rows(polygon_table(Detections(np.zeros((3, 7), np.float32))), 3) == ()
