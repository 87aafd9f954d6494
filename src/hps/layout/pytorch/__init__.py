"""The layout backend `transformers`: PaddleOCR's page models through Hugging Face transformers on PyTorch."""
