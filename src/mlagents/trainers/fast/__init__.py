"""What is fast by a trick. The readable form stands elsewhere, and is the tested reference."""
