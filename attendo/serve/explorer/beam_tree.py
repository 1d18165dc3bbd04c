"""The tree of a search as the page draws it: step by step, with what became of each hypothesis and why."""

from typing import Any

from attendo.decode.tree import Node, Tree
from attendo.serve.errors import Refusal
from attendo.serve.explorer.searching import Search, Turns
from attendo.text_model.choices import ranking_of

MOST_NODES = 10_000
KEPT = ("goes on", "finished", "cut")
REASONS = {
    "goes on": "kept",
    "finished": "ended",
    "cut": "limit",
    "not among the best W": "score",
    "ends, but not among the best W": "score_ended",
    "pushed out by better finished ones": "pushed_out",
    "forbidden": "forbidden",
    "not chosen": "not_chosen",
    "beyond the limit": "beyond_limit",
    "left, as enough have finished": "enough",
    # The page asks for no phrases; should it come to that, these are words that it has.
    "ends, but phrases are missing": "forbidden",
    "its bank is full": "not_chosen",
    "no room left for the phrases": "not_chosen",
}


def told_tree(search: Search) -> Turns[dict[str, Any]]:
    """Nodes have numbers of their own over all groups of a diverse beam."""
    trees = yield from search.trees()
    nodes = sum(len(tree.nodes) for tree in trees)
    if nodes > MOST_NODES:
        raise Refusal("tree_too_large", nodes=nodes, most=MOST_NODES)
    steps: list[list[dict[str, Any]]] = []
    ranking: list[dict[str, Any]] = []
    first = 0
    for tree in trees:
        told = [_told(tree, node, first, search) for node in tree.nodes]
        for node, each in zip(tree.nodes, told, strict=True):
            while len(steps) < node.step:
                steps.append([])
            steps[node.step - 1].append(each)
            if node.fate in ("finished", "cut"):
                ranking.append({name: each[name] for name in ("id", "text", "log_probability", "score", "reason")})
        first += len(tree.nodes)
    # What ended by itself stands before what was cut, as in the answer.
    ranking.sort(key=lambda each: (each["reason"] == "limit", -each["score"]))
    return {"steps": steps, "ranking": ranking, "width": sum(tree.width for tree in trees)}


def _told(tree: Tree, node: Node, first: int, search: Search) -> dict[str, Any]:
    tokenizer = search.model.target_tokenizer
    ids = tree.ids(node)
    reason = REASONS[node.fate]
    if reason == "forbidden" and _repeats(ids, search.config.no_repeat_ngram):
        reason = "ngram"
    return {
        "id": first + node.number,
        "parent": None if node.parent is None else first + node.parent,
        "group": tree.group,
        "piece": "" if node.id is None else tokenizer.pieces([node.id])[0],
        "token": node.id,
        "token_log_probability": node.log_probability,
        "log_probability": _summed(tree, node),
        "value": node.value,
        "score": _score(node, len(ids), search) if node.score is None else node.score,
        "kept": node.fate in KEPT,
        "reason": reason,
        "text": tokenizer.decode(ids),
    }


def _summed(tree: Tree, node: Node) -> float:
    """Of the whole hypothesis; `value` also has what penalties added."""
    total = 0.0 if node.id is None else node.log_probability
    while node.parent is not None:
        node = tree.nodes[node.parent]
        total += node.log_probability
    return total


def _score(node: Node, tokens: int, search: Search) -> float:
    """What it would be worth if it stopped here."""
    divisor, reward = ranking_of(search.config).terms(tokens)
    return node.value / divisor + reward


def _repeats(ids: list[int], size: int) -> bool:
    """Whether its last `size` tokens have come before."""
    return 0 < size <= len(ids) and any(ids[n : n + size] == ids[-size:] for n in range(len(ids) - size))
