"""Paint a dozen pictures to make thumbnails of, where there are no photos at hand: `python -m sample_photos FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

from PIL import Image, ImageDraw

SIZE = (800, 600)


def paint(number: int) -> Image.Image:
    """Paint a sun, at another place and above another sea each time."""
    picture = Image.linear_gradient("L").resize(SIZE)
    colours = ((20, 30, 90 + 10 * number), (250, 180 - 10 * number, 90))
    sky = Image.composite(Image.new("RGB", SIZE, colours[1]), Image.new("RGB", SIZE, colours[0]), picture)
    draw = ImageDraw.Draw(sky)
    left, top = 50 + 55 * number, 75 + 20 * number
    draw.ellipse((left, top, left + 100, top + 100), fill=(255, 240, 170))
    draw.rectangle((0, 450, *SIZE), fill=(10, 60 + 8 * number, 80))
    return sky


def main(folder: str) -> None:
    """Write the pictures as JPEG files."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    for number in range(12):
        paint(number).save(Path(folder) / f"sunset-{number:02}.jpg")


if __name__ == "__main__":
    main(*sys.argv[1:])
