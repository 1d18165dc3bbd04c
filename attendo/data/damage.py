"""Prepared data that is no longer what was written."""

from attendo.errors import DataError


class DamagedDataError(DataError):
    """`fault` is the error without its fix, which is another one if a run has prepared the data itself."""

    def __init__(self, code: str, /, **values: object) -> None:
        super().__init__("prepared_data_damaged", fault=DataError(code, **values))

    @property
    def fault(self) -> DataError:
        fault = self.values["fault"]
        assert isinstance(fault, DataError)
        return fault
