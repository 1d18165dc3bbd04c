"""A certificate as lines on a screen."""

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


def _of_logits(certificate: "Certificate") -> list[tuple[str, str, str]]:
    bounds = certificate.bounds
    return [
        (f"{name} logit difference", _number(found), "" if most is None else f"at most {most:.0e}")
        for name, found, most in (
            ("mean", certificate.mean_difference, bounds.mean_difference),
            ("largest", certificate.largest_difference, bounds.largest_difference),
        )
    ]


def _of_search(certificate: "Certificate", each: "Compared") -> list[tuple[str, str, str]]:
    name = "greedy" if each.beam == 1 else f"beam {each.beam}"
    bounds = certificate.bounds
    judged = bounds.same_tokens is not None and certificate.judged_by == "same_tokens"
    return [
        (f"{name}: same tokens", f"{each.same_tokens:.2%}", f"at least {bounds.same_tokens:.1%}" if judged else ""),
        (f"{name}: same answers", f"{each.same_answers:,} of {certificate.sentences:,}", ""),
        (f"{name}: largest score difference", _number(each.score_difference), ""),
        (f"{name}: tokens/s, ours and theirs", f"{each.ours_per_second:,.0f} and {each.theirs_per_second:,.0f}", ""),
    ]


def _of_scores(certificate: "Certificate") -> list[tuple[str, str, str]]:
    scored, bounds, judged = certificate.scored, certificate.bounds, certificate.judged_by
    rows = []
    if certificate.agreement is not None:
        least = f"at least {bounds.agreement:g}" if judged == "agreement" else ""
        rows.append(("BLEU of theirs with ours as references", f"{certificate.agreement:.2f}", least))
    if scored is None:
        return rows
    count, most = f"{scored.sentences:,}", f"at most {bounds.lost_bleu}" if judged == "lost_bleu" else ""
    return [
        *rows,
        (f"BLEU of {count}, ours and theirs", f"{scored.ours_bleu:.2f} and {scored.theirs_bleu:.2f}", ""),
        (f"chrF of {count}, ours and theirs", f"{scored.ours_chrf:.2f} and {scored.theirs_chrf:.2f}", ""),
        ("lost BLEU", f"{scored.lost_bleu:.2f}", most),
    ]


def _number(value: float | None) -> str:
    return _UNTOLD if value is None else f"{value:.1e}"
