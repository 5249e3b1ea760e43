"""Make a thumbnail of each photo in a folder: `python -m thumbnails PHOTOS THUMBNAILS`.

The key of a job is the photo as it is now (path, size, time of its last change) and where the thumbnail goes.  So a
second run makes jobs for new and changed photos only.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from PIL import Image, ImageOps, UnidentifiedImageError

from tenure import AddError, App, Job, JobFailed, Signature, as_completed, current_job

app = App("thumbnails")

SUFFIXES = {".gif", ".jpeg", ".jpg", ".png", ".webp"}
EDGE = 256
"""Pixels of a thumbnail's longer edge."""


def photo_key(photo: str, target: str, size: int, changed: int) -> str:
    """Name the work: two calls for the same photo, unchanged, are one job."""
    return hashlib.sha256(f"{photo}\0{target}\0{size}\0{changed}".encode()).hexdigest()


@app.task(
    key=photo_key,
    # Any other error is tried again: a photo that is being copied is cut short for a moment.
    max_attempts=5,
    give_up_on=(UnidentifiedImageError, Image.DecompressionBombError, FileNotFoundError),
)
def make_thumbnail(photo: str, target: str, size: int, changed: int) -> str:
    """Write a small version of `photo` to `target`; returns its path.

    Running twice is harmless: each run writes a file of its own, which takes the target's place when it is whole.
    """
    place = Path(target)
    place.parent.mkdir(parents=True, exist_ok=True)
    part = place.with_name(f"{current_job.id}-{current_job.fence}.part")
    with Image.open(photo) as image:
        kind = image.format
        image.thumbnail((EDGE, EDGE))
        ImageOps.exif_transpose(image, in_place=True)  # a camera that was held upright says so in the file
        image.save(part, kind)
    part.replace(place)
    return target


def calls(photos: Path, thumbnails: Path) -> Iterator[Signature[str]]:
    """Return one call for each photo below the folder."""
    for photo in sorted(photos.rglob("*")):
        if photo.suffix.lower() in SUFFIXES:
            now = photo.stat()
            target = thumbnails / photo.relative_to(photos)
            yield make_thumbnail.s(str(photo), str(target), now.st_size, now.st_mtime_ns)


def tell(jobs: Iterable[Job[str]]) -> int:
    """Wait for all jobs, say which failed, and return how many did."""
    failed = 0
    for job in as_completed(jobs):
        try:
            job.result()
        except JobFailed as error:
            failed += 1
            print(f"failed: {error.reason}")
    return failed


def main(photos: str, thumbnails: str) -> int:
    """Add the jobs and wait for them; returns the exit code."""
    answers = app.add_many(calls(Path(photos).resolve(), Path(thumbnails).resolve()))
    refused = [answer for answer in answers if isinstance(answer, AddError)]
    jobs = [answer for answer in answers if isinstance(answer, Job)]
    for error in refused:
        print(f"refused: {error}")
    print(f"{len(jobs)} photos, new jobs: {sum(job.created for job in jobs)}", flush=True)
    failed = tell(jobs)
    print(f"{len(jobs) - failed} thumbnails in {thumbnails}")
    return 1 if failed or refused else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
