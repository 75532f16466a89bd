"""What PyTorch's pool looks like when it gives up: which stream its segments belong to, and where they have gaps.

Only PyTorch knows that. A snapshot of its segments takes time in proportion to its blocks, so all of them together may
take a small share of the job's time; nothing is kept of them.
"""

from __future__ import annotations

import time
from typing import Any

from .. import _internal

#: Traits of segments, as recordings have them.
_SMALL_BLOCKS, _EXPANDABLE, _PRIVATE = 1, 2, 4
#: Segments told one by one, those with most unused memory first; the others are added up by kind.
_MOST_SEGMENTS = 2048
#: All snapshots together may take this long, and this share of the time since the first.
_FREE_SECONDS = 1.0
_TIME_SHARE = 0.02

#: Address, size, unused bytes, largest gap, stream and traits.
Segment = list[int]


class Refusals:
    """Tells how the pool looks each time it gives up, as long as there is time for it."""

    def __init__(self) -> None:
        self._started: float | None = None
        self._spent = 0.0

    def tell(self, npu: Any, device: int, requested: int, total: int, free: int) -> None:
        """The pool of a device gives up: `total` is what the job lets it have, or the card's size."""
        begin = time.monotonic()
        if self._started is None:
            self._started = begin
        if requested <= 0 or self._spent > _FREE_SECONDS + _TIME_SHARE * (begin - self._started):
            return
        try:
            card_bytes = int(npu.mem_get_info(device)[1])
            limit = total if total < card_bytes else 0
            segments = [_described(segment) for segment in npu.memory_snapshot() if segment["device"] == device]
            numbers = [requested, limit, int(npu.memory_reserved(device)), free, card_bytes]
            _internal.pool_gave_up(device, numbers, int(npu.current_stream(device).npu_stream), bounded(segments))
        finally:
            self._spent += time.monotonic() - begin


def _described(segment: dict[str, Any]) -> Segment:
    gaps = [block["size"] for block in segment["blocks"] if block["state"] == "inactive"]
    traits = _SMALL_BLOCKS if segment["segment_type"] == "small" else 0
    if segment.get("is_expandable"):
        traits |= _EXPANDABLE
    if any(segment.get("segment_pool_id", ())):
        traits |= _PRIVATE
    return [segment["address"], segment["total_size"], sum(gaps), max(gaps, default=0), segment["stream"], traits]


def bounded(segments: list[Segment], most: int = _MOST_SEGMENTS) -> list[Segment]:
    """As many of the segments as are told one by one, and sums of the others of each stream and kind."""
    segments.sort(key=lambda segment: segment[2], reverse=True)
    sums: dict[tuple[int, int], Segment] = {}
    for _, size, unused, largest, stream, traits in segments[most:]:
        of_kind = sums.setdefault((stream, traits), [0, 0, 0, 0, stream, traits])
        of_kind[1] += size
        of_kind[2] += unused
        of_kind[3] = max(of_kind[3], largest)
    return segments[:most] + list(sums.values())


refusals = Refusals()
