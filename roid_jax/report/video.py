"""Pictures one after another, as an animated GIF: any browser shows it, and no codec is needed."""

import io
from collections.abc import Sequence

import numpy as np
from PIL import Image

_COLOURS = 64


def to_gif(frames: Sequence[np.ndarray], *, per_second: float) -> bytes:
    """Returns `[H, W, 3]` pictures as a GIF that plays for ever, all in the same few colours."""
    if not frames:
        raise ValueError("there are no pictures to show.")
    some = [frames[i] for i in np.linspace(0, len(frames) - 1, 8).astype(int)]
    palette = Image.fromarray(np.concatenate(some)).quantize(_COLOURS)
    first, *rest = [
        Image.fromarray(np.asarray(frame)).quantize(palette=palette, dither=Image.Dither.NONE)
        for frame in frames
    ]
    buffer = io.BytesIO()
    milliseconds = round(1000.0 / per_second)
    first.save(buffer, "GIF", save_all=True, append_images=rest, duration=milliseconds, loop=0)
    return buffer.getvalue()
