"""Whole trees, pruned, exported and imported, in every kind of store and beside whoever uses it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from retinue.base.ids import MessageId, SessionId
from retinue.compose.keeping import export_tree, find_tree, import_tree, prune_tree, stored_trees
from retinue.errors import (
    AlreadyExists,
    BadExport,
    BadInput,
    IdConflict,
    OpenTurn,
    SessionHeld,
    SessionNotFound,
    StoreFailure,
)
from retinue.session.events import (
    ActivationStart,
    RequestHeader,
    RequestHeaderChange,
    StepEnd,
    StepStart,
    TurnEnd,
    TurnStart,
)
from retinue.session.rows import Claim, Hush, Park, Replace, Withdraw
from retinue.testing.faults import FaultyStore
from retinue.tools.output import spill_path, write_private
from retinue.tools.tool import CallKey
from tests.store.contract import Tree, append, insert, message, sent
from tests.store.homes import Home, InMemory, InSqlite

ROOT = SessionId("root")
CHILD = SessionId("child")
LARGE = RequestHeaderChange(RequestHeader(config={}, system="Be brief. " * 1000), "initial")


def folder(parent: Path, name: str) -> Path:
    (parent / name).mkdir()
    return parent / name


@pytest.fixture(params=[InMemory, InSqlite])
async def homes(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[Home, Home]]:
    """Two homes of one kind."""
    pair = tuple(request.param(folder(tmp_path, name)) for name in ("here", "there"))
    yield pair
    for home in pair:
        await home.aclose()


async def grown(home: Home, root: str = "root", child: str = "child") -> Tree:
    """A tree with an open turn, an open activation and rows of every kind."""
    tree = await Tree.planted(home.open(), root, child)
    tree.commit(*(insert(root, f"{root}-{i}") for i in range(6)), insert(root, f"{root}-urgent", prepend=True))
    id = SessionId(root)
    tree.commit(
        Claim(id, (MessageId(f"{root}-urgent"),), 1),
        append(root, 0, TurnStart(1), LARGE, StepStart(1, 1), message(f"{root}-urgent")),
        Withdraw(id, (MessageId(f"{root}-0"),), "stopped"),
        Park(id, (MessageId(f"{root}-1"),)),
        Hush(id, (MessageId(f"{root}-2"),)),
        Replace(MessageId(f"{root}-3"), sent(root, f"{root}-3-again")),
    )
    tree.commit(append(child, 0, ActivationStart(1), TurnStart(1), LARGE), insert(child, f"{child}-1"))
    return tree


async def at_rest(home: Home, root: str = "root", *, time: int = 2000) -> Tree:
    tree = await Tree.planted(home.open(), root)
    ends = (TurnStart(1), TurnEnd(turn=1, reason="completed"))
    tree.commit(append(root, 0, *ends, time=time))
    return tree


def lines(file: Path) -> list[bytes]:
    return file.read_bytes().splitlines(keepends=True)


# Export and import.


async def test_a_tree_goes_into_another_home_and_out_of_it_byte_for_byte(
    homes: tuple[Home, Home], tmp_path: Path
) -> None:
    here, there = homes
    tree = await grown(here)
    assert await export_tree(tree.store, ROOT, tmp_path / "first") == 2
    store = there.open()
    imported = await import_tree(store, there.clock, lines(tmp_path / "first"))
    assert (imported.root, imported.sessions, imported.events, imported.owes_work) == (ROOT, 2, 7, True)
    await export_tree(store, ROOT, tmp_path / "second")
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()
    assert (tmp_path / "first").stat().st_mode & 0o777 == 0o600


async def test_an_imported_tree_owes_what_it_owed_and_goes_on(homes: tuple[Home, Home], tmp_path: Path) -> None:
    here, there = homes
    tree = await grown(here)
    await export_tree(tree.store, ROOT, tmp_path / "file")
    store = there.open()
    await import_tree(store, there.clock, lines(tmp_path / "file"))
    assert await store.owing(ROOT) == await tree.store.owing(ROOT) == [ROOT, CHILD]
    assert [s.open_turn for s in await store.tree(ROOT)] == [1, 1]
    here_pending, there_pending = [(await s.read(ROOT)).pending for s in (tree.store, store)]
    assert [row.delivery for row in there_pending] == [row.delivery for row in here_pending]
    again = Tree(there.open(), await store.acquire(ROOT))
    again.commit(append("root", 4, StepEnd(1, 1), TurnEnd(turn=1, reason="completed")), insert("root", "later"))
    assert (await store.read(ROOT)).pending[-1].delivery.id == "later"


async def test_an_import_leaves_the_tree_free_for_others(homes: tuple[Home, Home], tmp_path: Path) -> None:
    here, there = homes
    await export_tree((await grown(here)).store, ROOT, tmp_path / "file")
    await import_tree(there.open(), there.clock, lines(tmp_path / "file"))
    await there.open().acquire(ROOT)


async def test_a_tree_of_which_anything_is_stored_already_is_refused_whole(
    homes: tuple[Home, Home], tmp_path: Path
) -> None:
    here, there = homes
    await export_tree((await grown(here)).store, ROOT, tmp_path / "file")
    tree = await Tree.planted(there.open(), "other", "child")
    with pytest.raises(AlreadyExists, match="'child' is stored here already; nothing was imported"):
        await import_tree(there.open(), there.clock, lines(tmp_path / "file"))
    await tree.store.remove(tree.lease)
    twin = await Tree.planted(there.open(), "twin")
    twin.commit(insert("twin", "child-1", "Something else."))
    with pytest.raises(IdConflict, match="'child-1'"):
        await import_tree(there.open(), there.clock, lines(tmp_path / "file"))
    assert [tree.root for tree in await stored_trees(there.open())] == ["twin"]
    await there.open().acquire(ROOT)


async def test_an_import_that_the_store_refuses_leaves_nothing(homes: tuple[Home, Home], tmp_path: Path) -> None:
    here, there = homes
    await export_tree((await grown(here)).store, ROOT, tmp_path / "file")
    store = FaultyStore(there.open())
    store.refuse(1)
    with pytest.raises(StoreFailure):
        await import_tree(store, there.clock, lines(tmp_path / "file"))
    assert await stored_trees(store) == []
    await import_tree(there.open(), there.clock, lines(tmp_path / "file"))


async def test_a_bad_file_is_refused_before_the_home_is_touched(homes: tuple[Home, Home], tmp_path: Path) -> None:
    here, there = homes
    await export_tree((await grown(here)).store, ROOT, tmp_path / "file")
    store = there.open()
    with pytest.raises(BadExport):
        await import_tree(store, there.clock, lines(tmp_path / "file")[:-1])
    assert await stored_trees(store) == []
    assert (await store.acquire(ROOT)).fence == 1


async def test_a_tree_is_exported_while_its_owner_writes(homes: tuple[Home, Home], tmp_path: Path) -> None:
    tree = await grown(homes[0])
    reader = homes[0].open()
    await export_tree(reader, ROOT, tmp_path / "before")
    tree.commit(append("root", 4, StepEnd(1, 1)))
    with pytest.raises(BadInput, match="exists already"):
        await export_tree(reader, ROOT, tmp_path / "before")
    await export_tree(reader, ROOT, tmp_path / "before", replace=True)
    assert b'"events":5' in (tmp_path / "before").read_bytes()


async def test_an_export_that_cannot_be_written_leaves_no_file(homes: tuple[Home, Home], tmp_path: Path) -> None:
    tree = await grown(homes[0])
    with pytest.raises(StoreFailure, match="nowhere.*cannot be written"):
        await export_tree(tree.store, ROOT, tmp_path / "nowhere" / "file")
    with pytest.raises(SessionNotFound):
        await export_tree(tree.store, SessionId("nobody"), tmp_path / "file")
    assert not (tmp_path / "file").exists()


# Pruning.


async def test_a_tree_at_rest_goes_with_everything_that_belongs_to_it(homes: tuple[Home, Home], tmp_path: Path) -> None:
    tree = await at_rest(homes[0])
    tree.commit(tree.create("child", "root"))
    await tree.store.release(tree.lease)
    await at_rest(homes[0], "other")
    spilled = [spill_path(tmp_path / "spill", CallKey(session_id=SessionId(id), seq=3, index=0)) for id in _IDS]
    for file in spilled:
        write_private(file, b"the whole text")
    store = homes[0].open()
    assert await prune_tree(store, ROOT, tmp_path) == 2
    assert [tree.root for tree in await stored_trees(store)] == ["other"]
    assert [file.exists() for file in spilled] == [False, False, True]
    assert sorted(p.name for p in (tmp_path / "spill").iterdir()) == ["other"]


_IDS = ("root", "child", "other")


async def test_a_tree_that_a_living_process_drives_is_never_pruned(homes: tuple[Home, Home]) -> None:
    tree = await at_rest(homes[0])
    other = homes[0].open()
    for force in (False, True):
        with pytest.raises(SessionHeld, match="'root' is driven by"):
            await prune_tree(other, ROOT, None, force=force)
    homes[0].kill(tree.store)
    assert await prune_tree(other, ROOT, None) == 1


async def test_open_work_is_only_pruned_by_force(homes: tuple[Home, Home]) -> None:
    tree = await grown(homes[0])
    homes[0].kill(tree.store)
    store = homes[0].open()
    with pytest.raises(OpenTurn, match="'root' still owes work"):
        await prune_tree(store, ROOT, None)
    await homes[0].open().acquire(ROOT)  # a refusal holds nothing
    assert len(await store.tree(ROOT)) == 2


async def test_by_force_open_work_goes_too(homes: tuple[Home, Home]) -> None:
    tree = await grown(homes[0])
    homes[0].kill(tree.store)
    store = homes[0].open()
    assert await prune_tree(store, ROOT, None, force=True) == 2
    assert await stored_trees(store) == []


async def test_a_tree_is_found_by_its_root_alone(homes: tuple[Home, Home]) -> None:
    store = (await grown(homes[0])).store
    assert (await find_tree(store, "ro")).root == ROOT
    with pytest.raises(BadInput, match="'child' is part of the tree of 'root'"):
        await find_tree(store, "chi")
    with pytest.raises(SessionNotFound):
        await find_tree(store, "nobody")


async def test_a_tree_is_as_old_as_its_youngest_event(homes: tuple[Home, Home]) -> None:
    tree = await at_rest(homes[0], time=5000)
    tree.commit(tree.create("child", "root"), append("child", 0, ActivationStart(1), time=9000))
    (found,) = await stored_trees(tree.store)
    assert (found.last_event_at, found.owes_work, found.sessions, found.events) == (9000, True, 2, 3)


async def test_a_damaged_tree_can_still_be_pruned(homes: tuple[Home, Home]) -> None:
    tree = await at_rest(homes[0])
    homes[0].put_header(ROOT, b"{")
    await tree.store.release(tree.lease)
    store = homes[0].open()
    found = await find_tree(store, "root")
    assert await prune_tree(store, found.root, None) == 1
