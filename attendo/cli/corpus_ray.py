"""`attendo generate --ray`: the windows of a corpus as a pipeline of Ray Data, one actor per GPU or CPU slot.

Ray starts more actors while windows wait, starts killed ones again, and repeats their windows. A window writes its part
atomically, as with `--workers`. A repeated window whose part is there is not computed again.
"""

import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attendo.cli.generate_corpus import CorpusCommand, WindowGenerator
from attendo.cli.language import current_language, use_language
from attendo.errors import AttendoError, UsageError, require_package

if TYPE_CHECKING:
    from attendo.recipes.corpus_generation import CorpusGeneration, Window
    from attendo.recipes.corpus_manifest import Counts

LOCAL = "local"  # start Ray on this machine
_MAX_BLOCKS = 4096  # of windows; Ray holds some kilobytes for each
_STORE_BYTES = 2**27  # of a local object store, which holds only numbers of windows and their counts


class WindowActor:
    """A loaded model in a Ray actor. An error is an answer: Ray would start the actor again and repeat the window."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        use_language(settings["language"])
        command = CorpusCommand.from_json(settings["command"])
        self._work = command.plan(list(map(Path, settings["shards"])), Path(settings["folder"]), {})
        self._generator: WindowGenerator | None = None
        self._fault: dict[str, Any] = {}
        try:
            self._generator = WindowGenerator(command, self._work)
        except AttendoError as error:  # such as a model that this machine does not have
            self._fault = _describe_error(error)

    def __call__(self, tasks: dict[str, Any]) -> dict[str, Any]:
        from attendo.recipes.corpus_generation import Window

        pairs = zip(tasks["shard"], tasks["number"], strict=True)
        return {"answer": [json.dumps(self._answer(Window(int(shard), int(number)))) for shard, number in pairs]}

    def _answer(self, window: "Window") -> dict[str, Any]:
        if self._generator is None:
            return self._fault
        try:
            counts = self._work.read_counts(window) or self._generator.generate(window)
        except AttendoError as error:
            return _describe_error(error)
        return {"window": asdict(window), "counts": asdict(counts)}


def _describe_error(error: AttendoError) -> dict[str, Any]:
    return {"error": error.text(current_language()), "exit_code": error.exit_code}


def compute_on_ray(
    windows: "Iterator[Window]",
    command: CorpusCommand,
    work: "CorpusGeneration",
    address: str,
    max_actors: int | None,
) -> "Iterator[tuple[Window, Counts]]":
    """Yield every window and its counts when its part is written. Without `max_actors` there is an actor per slot."""
    from attendo.recipes.corpus_generation import Window
    from attendo.recipes.corpus_manifest import Counts
    from attendo.recipes.jobs import JobError

    tasks = [asdict(window) for window in windows]
    if not tasks:
        return
    with _connect(address):
        for row in _make_pipeline(tasks, _make_settings(command, work), command.device, max_actors).iter_rows():
            answer = json.loads(row["answer"])
            if "error" in answer:
                raise JobError("corpus_actor_failed", max(answer["exit_code"], 1), reason=answer["error"])
            yield Window(**answer["window"]), Counts(**answer["counts"])


def _make_settings(command: CorpusCommand, work: "CorpusGeneration") -> dict[str, Any]:
    """Return what an actor has to know. An actor may have another working directory, so all paths are absolute."""
    options = dict(command.options)
    if "glossary" in options:
        options["glossary"] = str(Path(options["glossary"]).absolute())
    draft = None if command.draft is None else command.draft.absolute()
    ensemble = [each.absolute() for each in command.ensemble]
    found = replace(command, model=command.model.absolute(), ensemble=ensemble, draft=draft, options=options)
    shards = [str(path.absolute()) for path in work.shards]
    folder = str(work.folder.absolute())
    return {"command": found.to_json(), "shards": shards, "folder": folder, "language": current_language()}


def _make_pipeline(
    tasks: list[dict[str, int]], settings: Mapping[str, Any], device: str, max_actors: int | None
) -> Any:
    """Return a dataset of answers. It begins with an actor in every slot and grows if the cluster grows."""
    import ray.data

    resources = ray.cluster_resources()
    on_gpu = device.startswith("cuda") or (device == "auto" and resources.get("GPU", 0) > 0)
    threads = int(os.environ.get("OMP_NUM_THREADS", "1"))  # Ray sets the threads of an actor to its number of CPUs
    slots = int(resources.get("GPU", 0) if on_gpu else resources["CPU"] // threads)
    first = max(1, min(slots, len(tasks), max_actors or slots))
    blocks = ray.data.from_items(tasks, override_num_blocks=min(len(tasks), _MAX_BLOCKS))
    return blocks.map_batches(
        WindowActor,
        fn_constructor_args=(settings,),
        batch_size=1,
        compute=ray.data.ActorPoolStrategy(min_size=1, max_size=max_actors, initial_size=first),
        num_cpus=0 if on_gpu else threads,
        num_gpus=1 if on_gpu else 0,
    )


@contextmanager
def _connect(address: str) -> Iterator[None]:
    """Start Ray on this machine, or connect to a cluster."""
    require_package("ray", "ray", "--ray")
    from attendo.nn.cpu_threads import available_cores

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would send a report to Ray's authors
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # Ray Data causes an error line that says nothing to users
    import ray
    from ray.data import DataContext

    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    local: dict[str, Any] = {
        "num_cpus": available_cores(),
        "include_dashboard": False,
        "object_store_memory": _STORE_BYTES,
    }
    try:
        if address == LOCAL:
            ray.init("local", **local, **quiet)
        else:
            ray.init(address, **quiet)
    except (ConnectionError, ValueError) as error:
        raise UsageError("ray_not_reached", address=address, reason=str(error).splitlines()[0]) from None
    context = DataContext.get_current()
    context.enable_progress_bars = False
    context.enable_operator_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    try:
        yield
    finally:
        ray.shutdown()
