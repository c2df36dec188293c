"""Searches for a text in all files below a folder, and prints the names of those that have it.

usage: search.py FOLDER TEXT

Of Parquet files it also searches the values, and of Avro files the blocks after decompression.
"""
import os
import sys
import zlib

import pyarrow.parquet


def long(text, at):
    """Returns a number of an Avro file and the place after it."""
    value, shift = 0, 0
    while True:
        byte = text[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at


def blocks(text):
    """Returns the decompressed blocks of an Avro file."""
    header, at, all = {}, 4, []
    while True:
        count, at = long(text, at)
        if count == 0:
            break
        if count < 0:
            count, (_, at) = -count, long(text, at)
        for _ in range(count):
            pair = []
            for _ in range(2):
                size, at = long(text, at)
                pair.append(text[at : at + size])
                at += size
            header[pair[0]] = pair[1]
    at += 16
    while at < len(text):
        _, at = long(text, at)
        size, at = long(text, at)
        block = text[at : at + size]
        codec = header.get(b"avro.codec", b"null")
        if codec == b"deflate":
            block = zlib.decompress(block, -15)
        elif codec != b"null":
            raise ValueError(f"codec {codec}")
        all.append(block)
        at += size + 16
    return all


folder, wanted = sys.argv[1], sys.argv[2].encode()
files = 0
for parent, _, names in os.walk(folder):
    for name in sorted(names):
        path = os.path.join(parent, name)
        content = open(path, "rb").read()
        parts = [content]
        if name.endswith(".parquet"):
            rows = pyarrow.parquet.read_table(path)
            parts.append(repr(rows.to_pylist()).encode())
        elif name.endswith(".avro"):
            parts += blocks(content)
        files += 1
        if any(wanted in part for part in parts):
            print(os.path.relpath(path, folder))
print(f"searched {files} files", file=sys.stderr)
