"""The trainer. Read `learn.py` first, `controller.py` second."""
