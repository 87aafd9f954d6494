"""The CPU default: layout, orientation and recognition with small ONNX models that come inside Python wheels.

The recogniser here is PP-OCR with table structure, not PaddleOCR-VL: formulas, seals and charts are not understood,
and Arabic, Korean and handwriting are not read.
"""
