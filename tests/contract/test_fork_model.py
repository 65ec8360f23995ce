"""Random forks, removals and deletions, against a model that copies paths instead of sharing them."""

from __future__ import annotations

import dataclasses
import random

import pytest

import lash
from tests.factories.session import append, commit, node

_STEPS = 150
_SESSION_IDS = tuple(f"s{number}" for number in range(5))


@dataclasses.dataclass
class _Model:
    """One session as a reader sees it: a copied path, then own nodes; parents remember removed ones."""

    revision: int
    inherited: list[str] = dataclasses.field(default_factory=list)
    own: list[str] = dataclasses.field(default_factory=list)
    parents: dict[str, str | None] = dataclasses.field(default_factory=dict)
    removed: set[str] = dataclasses.field(default_factory=set)
    leaf: str | None = None
    owners: dict[str, object] = dataclasses.field(default_factory=dict)
    """Which session made each inherited node, as the model object of that session."""

    @property
    def live(self) -> list[str]:
        return self.inherited + [each for each in self.own if each not in self.removed]

    def path(self, node_id: str | None) -> list[str]:
        live, path = set(self.live), []
        while node_id in live:
            assert node_id is not None
            path.append(node_id)
            node_id = self.parents[node_id]
        return path[::-1]

    def line(self) -> set[str]:
        """Return every ancestor of the leaf, also behind a removed one."""
        line, current = set(), self.leaf
        while current is not None:
            line.add(current)
            current = self.parents.get(current)
        return line


class _World:
    def __init__(self, storage: lash.Storage, seed: int) -> None:
        self.storage = storage
        self.chance = random.Random(seed)
        self.sessions: dict[str, _Model] = {}

    async def step(self, number: int) -> None:
        session_id = self.chance.choice(_SESSION_IDS)
        model = self.sessions.get(session_id)
        if model is None:
            await self.create(session_id)
            return
        actions = (self.add, self.add, self.add, self.move, self.remove, self.vacuum, self.delete, self.replace)
        await self.chance.choice(actions)(session_id, model, f"n{number}")

    async def create(self, session_id: str) -> None:
        sources = [each for each in self.sessions if self.sessions[each].live]
        if not sources or self.chance.random() < 0.2:
            made = await self.storage.sessions.create(session_id)
            first = lash.model.Commit(session_id=session_id, expected_revision=made.revision)
            await self.storage.session(session_id).commit(first)
            self.sessions[session_id] = _Model(made.revision + 1)
            return
        source = self.sessions[source_id := self.chance.choice(sources)]
        node_id = self.chance.choice(source.live)
        made = await self.storage.sessions.fork(source_id, session_id, node_id=node_id)
        path = source.path(node_id)
        self.sessions[session_id] = _Model(
            made.revision,
            inherited=path,
            parents={each: source.parents[each] for each in path},
            leaf=node_id,
            owners={each: source.owners.get(each, source) for each in path},
        )

    async def add(self, session_id: str, model: _Model, name: str) -> None:
        parent = self.chance.choice([*model.live, model.leaf if model.path(model.leaf) else None, None])
        new = [node(name, parent), node(f"{name}.1", name)][: self.chance.randint(1, 2)]
        await self.commit(session_id, model, append(*new))
        model.own += [each.node_id for each in new]
        model.parents |= {each.node_id: each.parent_node_id for each in new}
        model.leaf = new[-1].node_id

    async def move(self, session_id: str, model: _Model, _name: str) -> None:
        leaf = self.chance.choice([*model.live, None])
        await self.commit(session_id, model, lash.model.Unchanged(leaf_node_id=leaf))
        model.leaf = leaf

    async def remove(self, session_id: str, model: _Model, _name: str) -> None:
        if not model.live:
            return
        node_id = self.chance.choice(model.live)
        forks = {each for other in self.sessions.values() for each, owner in other.owners.items() if owner is model}
        if node_id in model.line() | set(model.inherited) | forks:
            with pytest.raises(lash.InvalidInput):
                await self.storage.session(session_id).tombstone([node_id])
            return
        assert await self.storage.session(session_id).tombstone([node_id]) == 1
        model.removed.add(node_id)

    async def vacuum(self, session_id: str, _model: _Model, _name: str) -> None:
        await self.storage.session(session_id).vacuum()

    async def delete(self, session_id: str, _model: _Model, _name: str) -> None:
        if self.chance.random() < 0.5:
            assert await self.storage.sessions.delete(session_id)
            del self.sessions[session_id]

    async def replace(self, session_id: str, model: _Model, name: str) -> None:
        graph = lash.model.ReplaceFull(nodes=(node(name),), leaf_node_id=name, replaced_node_count=len(model.live))
        if any(owner is model for other in self.sessions.values() for owner in other.owners.values()):
            with pytest.raises(lash.errors.GraphShared):
                await self.commit(session_id, model, graph)
            return
        if self.chance.random() < 0.3:
            await self.commit(session_id, model, graph)
            self.sessions[session_id] = _Model(model.revision, own=[name], parents={name: None}, leaf=name)

    async def commit(
        self, session_id: str, model: _Model, graph: lash.model.Append | lash.model.Unchanged | lash.model.ReplaceFull
    ) -> None:
        await self.storage.session(session_id).commit(commit(model.revision, session_id=session_id, graph=graph))
        model.revision += 1

    async def check(self) -> None:
        for session_id, model in self.sessions.items():
            session = self.storage.session(session_id)
            whole, path = await session.load(lash.model.FullGraph()), await session.load()
            assert whole is not None
            assert path is not None
            assert [each.node_id for each in whole.graph.nodes] == model.live
            assert whole.head.node_count == len(model.live)
            assert [each.node_id for each in path.graph.nodes] == model.path(model.leaf)
            if model.live:
                chosen = self.chance.choice(model.live)
                other = await session.load(lash.model.ActivePath(leaf_node_id=chosen, last=3))
                assert other is not None
                assert [each.node_id for each in other.graph.nodes] == model.path(chosen)[-3:]
                assert await session.node(chosen) is not None


@pytest.mark.parametrize("seed", range(4))
async def test_sharing_looks_like_copying(backend_url: str, seed: int) -> None:
    """After any operations, every session reads as if its inherited path had been copied."""
    async with await lash.open(backend_url) as storage:
        world = _World(storage, seed)
        for number in range(_STEPS):
            await world.step(number)
            if number % 5 == 0:
                await world.check()
        await world.check()
        assert (await storage.maintenance.collect_garbage(dry_run=True)).is_clean
        for session_id in tuple(world.sessions):
            await storage.sessions.delete(session_id)
        assert (await storage.maintenance.collect_garbage(dry_run=True)).is_clean
