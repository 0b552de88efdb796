"""Networks: map observations to encodings, action distributions and values."""
