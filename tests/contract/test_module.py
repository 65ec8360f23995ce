"""Laws of modules in a storage: what is loaded is verified, and nothing else is returned."""

from __future__ import annotations

import asyncio

import pytest

from lash.errors import ArtifactNotFound, CorruptData, InvalidInput
from lash.lang.host.catalogue import HostCatalogue
from lash.lang.host.environment import Abilities, HostEnvironment
from lash.lang.link import LinkedModule, link
from lash.lang.module.artifact import encode_artifact
from lash.lang.module.refs import ModuleRef
from lash.lang.module.store import ModuleStore
from lash.lang.parse import parse
from lash.testing.harness import Harness


def compiled(source: str) -> LinkedModule:
    return link(parse(source), HostEnvironment(HostCatalogue(), Abilities.all()))


class TestModule:
    """Laws of modules."""

    async def test_a_module_is_loaded_by_its_ref(self, harness: Harness) -> None:
        """Parse, link, put, and load verified: another storage returns the module and its process."""
        module = compiled("process scan(root: str) { finish root }")
        await ModuleStore((await harness.open()).artifacts).put(module.artifact)
        found = await ModuleStore((await harness.open()).artifacts).get(module.module_ref)
        assert found == module.artifact
        assert found.module_ref == module.module_ref
        assert found.exports["scan"] == module.process_ref("scan")

    async def test_putting_again_changes_nothing(self, harness: Harness) -> None:
        """Puts of one module at once store one artifact."""
        storage = await harness.open()
        modules, module = ModuleStore(storage.artifacts), compiled("process scan(root: str) { finish root }")
        refs = set(await asyncio.gather(*(modules.put(module.artifact) for _ in range(4))))
        page = await storage.artifacts.list(module.module_ref)
        assert [each.ref for each in page.artifacts] == list(refs)

    async def test_other_names_of_locals_are_the_same_module(self, harness: Harness) -> None:
        """Both artifacts are stored, and every load returns the same one."""
        storage = await harness.open()
        modules = ModuleStore(storage.artifacts)
        one, two = (compiled(f"process scan(root: str) {{ {name} = root finish {name} }}") for name in ("v", "w"))
        assert one.module_ref == two.module_ref
        assert one.artifact != two.artifact
        assert await modules.put(one.artifact) != await modules.put(two.artifact)
        first = await modules.get(one.module_ref)
        assert first in (one.artifact, two.artifact)
        assert await ModuleStore((await harness.open()).artifacts).get(one.module_ref) == first

    async def test_an_unknown_module_is_not_found(self, harness: Harness) -> None:
        """A ref without an artifact raises; nothing is invented."""
        modules, module = ModuleStore((await harness.open()).artifacts), compiled("submit 1")
        assert not await modules.exists(module.module_ref)
        with pytest.raises(ArtifactNotFound):
            await modules.get(module.module_ref)
        with pytest.raises(InvalidInput):
            await modules.get(ModuleRef(""))
        await modules.put(module.artifact)
        assert await modules.exists(module.module_ref)

    async def test_damaged_bytes_are_refused(self, harness: Harness) -> None:
        """Bytes that are not the artifact of the ref raise CorruptData: changed ones, and those of another module."""
        storage = await harness.open()
        modules = ModuleStore(storage.artifacts)
        module, other = compiled("process a() { finish 1 }"), compiled("process a() { finish 2 }")
        changed = encode_artifact(module.artifact).replace(b'{"Number":1.0}', b'{"Number":3.0}')
        for content in (changed, encode_artifact(other.artifact), b"{}", b"\x00"):
            ref = await storage.artifacts.put(module.module_ref, content)
            with pytest.raises(CorruptData):
                await modules.get(module.module_ref)
            await storage.artifacts.delete(module.module_ref, ref)
        await modules.put(module.artifact)
        assert await modules.get(module.module_ref) == module.artifact
