"""The live view: a page on this machine that shows what an environment does."""
