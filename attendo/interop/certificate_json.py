"""A certificate for `json.dumps`."""

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attendo.interop.certificate import Certificate


def json_of(certificate: "Certificate") -> dict[str, Any]:
    """All that it has, and what follows from that."""
    content = asdict(certificate)
    if certificate.scored is not None:
        content["scored"]["lost_bleu"] = certificate.scored.lost_bleu
    told: dict[str, Any] = _plain({"passed": certificate.passed, **content})
    return told


def _plain(value: Any) -> Any:
    """JSON has numbers alone: what is none is the text `nan` or `inf`."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
