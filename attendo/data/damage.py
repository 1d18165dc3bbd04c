"""Prepared data that is no longer what was written."""

from attendo.errors import DataError


class DamagedDataError(DataError):
    """`what` is the message without its way out, which is another one where a run has prepared the data itself."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}; prepare the data again")
        self.what = what
