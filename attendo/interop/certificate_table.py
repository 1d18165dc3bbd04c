"""A certificate as lines on a screen."""

from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attendo.interop.certificate import Certificate, Compared

_UNTOLD = "not told"


def table_of(certificate: "Certificate") -> str:
    """A line for each number: its name, what was found, what is asked for."""
    rows = [
        ("sentences", f"{certificate.sentences:,}", ""),
        *_of_logits(certificate),
        *(row for each in certificate.searches for row in _of_search(certificate, each)),
        *_of_scores(certificate),
    ]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    lines = [f"{name:{widths[0]}}  {found:>{widths[1]}}  {bound}".rstrip() for name, found, bound in rows]
    verdict = "passed" if certificate.passed else f"FAILED: {'; '.join(certificate.reasons)}"
    parts = [[f"{certificate.theirs} beside {certificate.ours}"], lines, [*certificate.notes], [verdict]]
    return "\n\n".join("\n".join(part) for part in parts if part)


def told_apart(found: float, bound: float | None, digits: int, kind: str) -> str:
    """With so many digits, or as many more as it takes to see on which side of the bound it lies."""
    if bound is None or found == bound:
        return f"{found:.{digits}{kind}}"
    tellings = ((f"{found:.{more}{kind}}", f"{bound:.{more}{kind}}") for more in count(digits))
    return next(told for told, other in tellings if told != other)


def _of_logits(certificate: "Certificate") -> list[tuple[str, str, str]]:
    bounds = certificate.bounds
    return [
        (f"{name} logit difference", _number(found, most), "" if most is None else f"at most {most:.0e}")
        for name, found, most in (
            ("mean", certificate.mean_difference, bounds.mean_difference),
            ("largest", certificate.largest_difference, bounds.largest_difference),
        )
    ]


def _of_search(certificate: "Certificate", each: "Compared") -> list[tuple[str, str, str]]:
    name = "greedy" if each.beam == 1 else f"beam {each.beam}"
    bounds = certificate.bounds
    least = bounds.same_tokens if certificate.judged_by == "same_tokens" else None
    asked_for = "" if least is None else f"at least {least:.1%}"
    return [
        (f"{name}: same tokens", told_apart(each.same_tokens, least, 2, "%"), asked_for),
        (f"{name}: same answers", f"{each.same_answers:,} of {certificate.sentences:,}", ""),
        (f"{name}: largest score difference", _number(each.score_difference), ""),
        (f"{name}: tokens/s, ours and theirs", f"{each.ours_per_second:,.0f} and {each.theirs_per_second:,.0f}", ""),
    ]


def _of_scores(certificate: "Certificate") -> list[tuple[str, str, str]]:
    scored, bounds, judged = certificate.scored, certificate.bounds, certificate.judged_by
    rows = []
    if certificate.agreement is not None:
        least = bounds.agreement if judged == "agreement" else None
        told = told_apart(certificate.agreement, least, 2, "f")
        rows.append(("BLEU of theirs with ours as references", told, "" if least is None else f"at least {least:g}"))
    if scored is None:
        return rows
    most = bounds.lost_bleu if judged == "lost_bleu" else None
    told, sentences = told_apart(scored.lost_bleu, most, 2, "f"), f"{scored.sentences:,}"
    return [
        *rows,
        (f"BLEU of {sentences}, ours and theirs", f"{scored.ours_bleu:.2f} and {scored.theirs_bleu:.2f}", ""),
        (f"chrF of {sentences}, ours and theirs", f"{scored.ours_chrf:.2f} and {scored.theirs_chrf:.2f}", ""),
        ("lost BLEU", told, "" if most is None else f"at most {most}"),
    ]


def _number(value: float | None, bound: float | None = None) -> str:
    return _UNTOLD if value is None else told_apart(value, bound, 1, "e")
