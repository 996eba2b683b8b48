"""Cache files: telling formats apart (sniff), llama.cpp's own records (legacy, with sidecar) and
the constmap formats (constmap, with annex). Byte layouts: docs/format.md."""
