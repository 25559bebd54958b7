"""What happens to checkpoints on a disk."""

import shutil


def flip(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0xFF
    file.write_bytes(content)


def cut(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def largest(folder):
    return max((f for f in folder.rglob("*") if f.is_file()), key=lambda f: f.stat().st_size)


DAMAGES = {
    "flipped": lambda last: flip(largest(last / "state")),
    "truncated": lambda last: cut(largest(last / "state")),
    "notes": lambda last: cut(last / "notes" / "metadata"),
    "rows": lambda last: flip(last / "rows" / "rows.jsonl"),
    "rows cut": lambda last: cut(last / "rows" / "rows.jsonl"),
    "rows deleted": lambda last: shutil.rmtree(last / "rows"),
    "half deleted": lambda last: shutil.rmtree(last / "state"),
}
