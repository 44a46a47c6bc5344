"""How much the server takes on at once: a bounded number of open sequences, refused beyond at once."""

from __future__ import annotations

from foredraft.server.errors import ApiError

RETRY_AFTER_S = 1


class Admission:
    """Counts sequences that are open: running, waiting, or about to be made. Used by the event loop's thread alone."""

    def __init__(self, max_open: int) -> None:
        self.max_open = max_open
        self.num_open = 0

    def take(self, count: int) -> Ticket:
        """Places for a request's sequences.

        Raises:
            ApiError: 429 where too many are taken, 400 where there never are that many.
        """
        if count > self.max_open:
            raise ApiError(
                400, f"this request has {count} choices in all; this server takes at most {self.max_open}", param="n"
            )
        if self.num_open + count > self.max_open:
            raise ApiError(
                429,
                "the server is busy and its queue full; try again later",
                code="queue_full",
                headers={"Retry-After": str(RETRY_AFTER_S)},
            )
        self.num_open += count
        return Ticket(self, count)


class Ticket:
    """The places that one request holds; given back one by one as its sequences end."""

    def __init__(self, admission: Admission, count: int) -> None:
        self._admission, self._num_held = admission, count

    def give_back(self, count: int | None = None) -> None:
        """Give back this many, or all that are left."""
        count = self._num_held if count is None else count
        self._num_held -= count
        self._admission.num_open -= count
