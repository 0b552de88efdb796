"""Export of policies as ONNX models."""
