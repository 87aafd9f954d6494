"""PaddleX's own PaddleOCR-VL pipeline as an HTTP service, arranged as the official kit arranges it.

Run by the Python of an environment that has PaddleX 3.7.2 and nothing of this kit (`make setup-paddlex`):

    python paddlex_peer.py --port 9000 --vlm-url http://127.0.0.1:8080 --boxes mix.json

One pipeline instance takes up to 8 waiting one-page requests at a time and answers them together, when the last is
done; meanwhile others wait. Its layout stage is given the boxes of a file, by the size of the page; all that follows
(cropping, merging, encoding, calls to the VLM server, assembly, Markdown) is PaddleX's own code with its own defaults.
Gateway and Triton of the official kit are left out, and several VLM servers are balanced for it, both in its favour.
"""

import argparse
import base64
import json
import queue
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import httpx2 as httpx  # what its OpenAI client is made of
import numpy as np
from paddlex.inference.models.layout_analysis.result import LayoutAnalysisResult
from paddlex.inference.pipelines import load_pipeline_config
from paddlex.inference.pipelines.paddleocr_vl.pipeline import _PaddleOCRVLPipeline

BATCH = 8  # max_batch_size of the official kit's layout-parsing
LAYOUT_BATCH = 8
LABELS = (
    *("abstract", "algorithm", "aside_text", "chart", "content", "display_formula", "doc_title", "figure_title"),
    *("footer", "footer_image", "footnote", "formula_number", "header", "header_image", "image", "inline_formula"),
    *("number", "paragraph_title", "reference", "reference_content", "seal", "table", "text", "vertical_text"),
    "vision_footnote",
)


class GivenLayout:
    """In the place of the layout model: rows [class, score, x1, y1, x2, y2, order] by page size, as fractions."""

    def __init__(self, file: Path) -> None:
        table = json.loads(file.read_text())
        self._pages: dict[str, list[list[float]]] = table.get("pages", {})
        self._others: list[list[float]] = table["boxes"]
        self.batch_sampler = SimpleNamespace(batch_size=LAYOUT_BATCH)

    def __call__(self, images: list[Any], **_: Any) -> Iterator[dict[str, Any]]:
        for image in images:
            height, width = image.shape[:2]
            rows = self._pages.get(f"{width}x{height}", self._others)
            boxes = [
                {
                    "cls_id": int(class_id),
                    "label": LABELS[int(class_id)],
                    "score": score,
                    "coordinate": [round(x1 * width), round(y1 * height), round(x2 * width), round(y2 * height)],
                    "order": int(order) + 1,
                }
                for class_id, score, x1, y1, x2, y2, order in rows
            ]
            found = {"input_path": None, "page_index": None, "input_img": image, "boxes": boxes}
            yield LayoutAnalysisResult(found)


class Balanced(httpx.AsyncBaseTransport):  # type: ignore[misc]
    """Each request to the server with the fewest outstanding: PaddleX's client knows only one, ours knows them all."""

    def __init__(self, urls: list[str]) -> None:
        self._urls = [httpx.URL(url) for url in urls]
        self._transport = httpx.AsyncHTTPTransport(limits=httpx.Limits(max_connections=None))
        self._outstanding = [0] * len(urls)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        place = min(range(len(self._urls)), key=self._outstanding.__getitem__)
        request.url = request.url.copy_with(host=self._urls[place].host, port=self._urls[place].port)
        self._outstanding[place] += 1
        try:
            response = await self._transport.handle_async_request(request)
            await response.aread()
            return response
        finally:
            self._outstanding[place] -= 1


class Pipeline(_PaddleOCRVLPipeline):  # type: ignore[misc]
    """PaddleX's pipeline but for the layout model."""

    def __init__(self, release: str, vlm_urls: list[str], boxes: Path) -> None:
        self._layout = GivenLayout(boxes)
        config = load_pipeline_config(release)
        server: dict[str, Any] = {"backend": "vllm-server", "server_url": f"{vlm_urls[0]}/v1"}
        if len(vlm_urls) > 1:
            server["client_kwargs"] = {"http_client": httpx.AsyncClient(transport=Balanced(vlm_urls), timeout=600)}
        config["SubModules"]["VLRecognition"]["genai_config"] = server
        super().__init__(config)

    def create_model(self, config: dict[str, Any], **options: Any) -> Any:
        if config.get("module_name") == "layout_detection":
            return self._layout
        return super().create_model(config, **options)


class Instance:
    """The one instance: a thread that answers waiting requests a batch at a time."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._waiting: queue.SimpleQueue[tuple[dict[str, Any], Future[dict[str, Any]]]] = queue.SimpleQueue()
        self._decoders = ThreadPoolExecutor(BATCH)
        threading.Thread(target=self._run, daemon=True).start()

    def result(self, request: dict[str, Any]) -> dict[str, Any]:
        """The `result` of the answer; raises what the pipeline raised."""
        answer: Future[dict[str, Any]] = Future()
        self._waiting.put((request, answer))
        return answer.result()

    def _run(self) -> None:
        while True:
            batch = [self._waiting.get()]
            while len(batch) < BATCH and not self._waiting.empty():
                batch.append(self._waiting.get())
            try:
                results = self._results([request for request, _ in batch])
            except Exception as error:  # a failure fails the batch, as it does there; the next batch is tried
                for _, answer in batch:
                    answer.set_exception(error)
                continue
            for (_, answer), result in zip(batch, results, strict=True):
                answer.set_result(result)

    def _results(self, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
        images = list(self._decoders.map(decoded, requests))
        return [page_result(page) for page in self._pipeline.predict(images)]


def decoded(request: dict[str, Any]) -> Any:
    data = np.frombuffer(base64.b64decode(request["file"]), np.uint8)
    return cv2.imdecode(data, cv2.IMREAD_COLOR)


def page_result(page: Any) -> dict[str, Any]:
    markdown = page._to_markdown(pretty=True, show_formula_number=False)
    parsed = {"prunedResult": page.json["res"], "markdown": {"text": markdown["markdown_texts"], "images": {}}}
    return {"layoutParsingResults": [parsed]}


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, port: int, instance: Instance) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.instance = instance


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        self._answer(200, {"errorCode": 0, "errorMsg": "Healthy"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            result = self.server.instance.result(body)
        except Exception as error:  # the client is told, as by any server
            self._answer(500, {"errorCode": 500, "errorMsg": repr(error)[:500]})
            return
        self._answer(200, {"errorCode": 0, "errorMsg": "Success", "result": result})

    def _answer(self, status: int, envelope: dict[str, Any]) -> None:
        body = json.dumps(envelope, default=str).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing for each request."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--vlm-url", action="append", required=True, help="without /v1; once for each server")
    parser.add_argument("--boxes", type=Path, required=True)
    parser.add_argument("--release", default="PaddleOCR-VL-1.6")
    arguments = parser.parse_args()
    pipeline = Pipeline(arguments.release, arguments.vlm_url, arguments.boxes)
    Server(arguments.port, Instance(pipeline)).serve_forever()


if __name__ == "__main__":
    main()
