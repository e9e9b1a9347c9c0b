"""Records a scenario: a real model answers, and what it said becomes the script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
from msgspec.structs import replace

from retinue.base.clock import SystemClock
from retinue.base.ids import SessionId
from retinue.compose.build import make_client
from retinue.errors import ConfigError, ModelError
from retinue.model.chunks import Chunk, Sink
from retinue.model.client import Body, ModelClient, ModelRequest, Transcript
from retinue.testing.scenario.folder import SCENARIO, SCRIPTS, Folder
from retinue.testing.scenario.form import FailForm, ReplyForm, ScriptForm
from retinue.testing.scenario.front_end import FRONT_ENDS
from retinue.testing.scenario.stage import Stage
from retinue.testing.scenario.steps import Performer
from retinue.testing.scenario.suite import Refreshed, refresh
from retinue.testing.scenario.taken import TakenSession, take
from retinue.testing.scenario.writing import reply_form, scripts_of, write_scripts

__all__ = ["Recorder", "record"]

_PATIENCE_S = 900.0
"""A real model may work for long."""


async def record(
    path: Path, *, environ: Mapping[str, str], model: str | None = None, base_url: str | None = None
) -> Refreshed:
    """The scenario has the scripts that its model spoke just now, and expects what comes of them when replayed.

    `model` and `base_url` replace those of the scenario's configuration while it is recorded. Of `environ` the keys
    and addresses of model providers are used, and nothing else. Raises: ConfigError, ModelNotConfigured.
    """
    folder = Folder.read(path)
    if folder.form.scripts is not None:
        raise ConfigError(f"{path}: {SCENARIO} has scripts; remove them, and a recording goes into {SCRIPTS}")
    asked = {name: value for name, value in environ.items() if name.endswith(("_API_KEY", "_BASE_URL"))}
    with TemporaryDirectory(prefix="retinue-scenario-") as place:
        stage = Stage(folder, Path(place), SystemClock(), asked, model=model, base_url=base_url)
        recorder, front_end = Recorder(stage), FRONT_ENDS[folder.form.front_end]()
        performer = Performer(stage, front_end, recorder.client, recorder.wait_request, patience_s=_PATIENCE_S)
        await performer.perform()
        sessions, _ = await take(stage.home, stage.clock)
        if performer.problems:
            return Refreshed(performer.problems)
        write_scripts(folder.path / SCRIPTS, recorder.scripts(sessions))
    refreshed = await refresh(path)
    return Refreshed(refreshed.problems, (SCRIPTS, *refreshed.changed))


class Recorder:
    """See Player. One recording, over all lives of the process."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._replies: dict[SessionId, list[ReplyForm]] = {}
        self._bodies: dict[SessionId, list[Body]] = {}
        self._changed = anyio.Event()

    def client(self) -> ModelClient:
        """See Player."""
        config = self._stage.config
        return _RecordingClient(
            make_client(config, self._stage.environ, model=config.model, base_url=config.base_url), self
        )

    async def wait_request(self, count: int, session_id: str) -> None:
        """See Player."""
        while len(self._bodies.get(SessionId(session_id), ())) < count:
            await self._changed.wait()

    def faults(self) -> list[str]:
        """See Player. Whatever a real model answers is right."""
        return []

    def asked(self, id: SessionId, body: Body) -> None:
        """A request has come. If the last one failed and this is the same, it takes its place."""
        said, bodies = self._replies.setdefault(id, []), self._bodies.setdefault(id, [])
        if said and said[-1].fail is not None and bodies[-1] == body:
            said.pop()
        bodies.append(body)
        self._changed.set()
        self._changed = anyio.Event()

    def answered(self, id: SessionId, reply: ReplyForm) -> None:
        """That is what became of it."""
        self._replies[id].append(reply)

    def scripts(self, sessions: Sequence[TakenSession]) -> tuple[ScriptForm, ...]:
        """What was recorded in these sessions."""
        return scripts_of(self._stage, sessions, self._replies)


class _RecordingClient:
    """A ModelClient that hands everything on and listens."""

    def __init__(self, inner: ModelClient, recorder: Recorder) -> None:
        self._inner = inner
        self._recorder = recorder

    @property
    def provider(self) -> str:
        """See ModelClient."""
        return self._inner.provider

    def context_window(self, model: str) -> int | None:
        """See ModelClient."""
        return self._inner.context_window(model)

    def transcript(self) -> Transcript:
        """See ModelClient."""
        return self._inner.transcript()

    def encode(self, request: ModelRequest) -> Body:
        """See ModelClient."""
        return self._inner.encode(request)

    async def stream(self, request: ModelRequest, body: Body, sink: Sink) -> None:
        """See ModelClient."""
        chunks: list[Chunk] = []

        def listen(chunk: Chunk) -> None:
            chunks.append(chunk)
            sink(chunk)

        id = request.session_id
        self._recorder.asked(id, body)
        try:
            await self._inner.stream(request, body, listen)
        except ModelError as error:
            fail = FailForm(kind=error.kind, message=str(error), status=error.status, retry_after_s=error.retry_after_s)
            self._recorder.answered(id, replace(reply_form(chunks), fail=fail))
            raise
        except anyio.get_cancelled_exc_class():
            self._recorder.answered(id, replace(reply_form(chunks), hang=True))
            raise
        self._recorder.answered(id, reply_form(chunks))

    async def aclose(self) -> None:
        """See ModelClient."""
        await self._inner.aclose()
