"""Rules about artifacts. Their model is a dictionary, and what each storage may still cache."""

from __future__ import annotations

import hashlib
from typing import Final

from hypothesis import strategies as st

from lash.model.artifact import ArtifactRef, ArtifactSummary, ProcessEnvironment
from tests.proof.model.base_rules import SessionLife
from tests.proof.model.kit import Refused, action
from tests.proof.model.world import HANDS, Side, World

NAMESPACES: Final = ("code", "other")
namespaces: Final = st.sampled_from((*NAMESPACES[:1] * 2, *NAMESPACES))
names: Final = st.sampled_from(("a", "a", "b"))
DAY_MS: Final = 86_400_000


class ArtifactRules(SessionLife):
    """Put, get, list, delete, and environments, which are removed a day after their last put."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.artifacts: dict[tuple[str, ArtifactRef], ArtifactSummary] = {}
        self._environments: dict[ArtifactRef, int] = {}
        self._remembered: list[set[tuple[str, ArtifactRef]]] = [set() for _ in range(HANDS)]

    @action(3, namespace=namespaces, name=names)
    def put_artifact(self, namespace: str, name: str) -> None:
        content = self._content(name)
        self.step(
            "artifact.put",
            lambda side: side.storage.artifacts.put(namespace, content),
            lambda _: self._put(namespace, content),
        )

    @action(3, namespace=namespaces, name=names)
    def get_artifact(self, namespace: str, name: str) -> None:
        content = self._content(name)
        ref = _ref(content)
        self.step(
            "artifact.get",
            lambda side: side.storage.artifacts.get(namespace, ref),
            lambda _: self._get(namespace, ref, content),
        )

    @action(2, namespace=namespaces, name=names)
    def delete_artifact(self, namespace: str, name: str) -> None:
        ref = _ref(self._content(name))
        gone = self.step(
            "artifact.delete",
            lambda side: side.storage.artifacts.delete(namespace, ref),
            lambda _: self._delete(namespace, ref),
        )
        self.count("artifact.delete:gone" if gone else "artifact.delete:not there")

    @action(1, namespace=namespaces)
    def list_artifacts(self, namespace: str) -> None:
        found = sorted((ref, each) for (place, ref), each in self.artifacts.items() if place == namespace)
        self.look("artifact.list", lambda side: _listed(side, namespace), tuple(each for _, each in found))

    @action(2, name=names)
    def put_environment(self, name: str) -> None:
        environment = ProcessEnvironment(body={"name": name, "example": self.world.example})

        def expected(got: ArtifactRef | None) -> ArtifactRef | None:
            assert got is not None
            self._environments[got] = self.now_ms
            return got

        self.step("environment.put", lambda side: side.storage.artifacts.put_environment(environment), expected)

    @action(1, later_ms=st.sampled_from((0, DAY_MS, DAY_MS + 1)))
    def collect_garbage(self, later_ms: int) -> None:
        self.world.advance(later_ms)
        old = [ref for ref, put_at_ms in self._environments.items() if put_at_ms < self.now_ms - DAY_MS]
        for ref in old:
            del self._environments[ref]
        self.look("collect_garbage", _collected, (True, len(old)))
        self.count("collect_garbage:some" if old else "collect_garbage:none")

    def reopened(self) -> None:
        super().reopened()
        self._remembered = [set() for _ in range(HANDS)]

    def _content(self, name: str) -> bytes:
        """Return bytes that no earlier example has stored, which a storage might cache."""
        return f"{name} {self.world.example}".encode() * 100

    def _put(self, namespace: str, content: bytes) -> ArtifactRef:
        ref = _ref(content)
        summary = ArtifactSummary(ref=ref, size=len(content), created_at_ms=self.now_ms)
        self.artifacts.setdefault((namespace, ref), summary)
        return ref

    def _get(self, namespace: str, ref: ArtifactRef, content: bytes) -> bytes:
        remembered = self._remembered[self.world.hand]
        if (namespace, ref) not in self.artifacts and (namespace, ref) not in remembered:
            raise Refused("ArtifactNotFound", namespace=namespace, ref=ref)
        if (namespace, ref) not in self.artifacts:
            self.count("artifact.get:remembered")
        remembered.add((namespace, ref))
        return content

    def _delete(self, namespace: str, ref: ArtifactRef) -> bool:
        self._remembered[self.world.hand].discard((namespace, ref))
        return self.artifacts.pop((namespace, ref), None) is not None


def _ref(content: bytes) -> ArtifactRef:
    return ArtifactRef(hashlib.sha256(content).hexdigest())


async def _listed(side: Side, namespace: str) -> tuple[ArtifactSummary, ...]:
    return (await side.storage.artifacts.list(namespace)).artifacts


async def _collected(side: Side) -> tuple[bool, int]:
    report = await side.storage.maintenance.collect_garbage()
    return report.is_clean, report.environments.rows
