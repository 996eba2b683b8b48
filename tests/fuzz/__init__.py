"""Fuzz targets: C ones (`static.c` and so on) and, for what Python reads, `gguf` and `files`.

`make fuzz` runs them, the Python ones with atheris; tests/test_fuzz_corpus.py and `make c-check`
replay what is stored in `corpus` and `crashes`.
"""
