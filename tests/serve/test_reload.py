"""Hot reload: the new bundle replaces the old one without losing a request."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from regard.serve.service import ModelSpec, Service
from regard.serve.service_errors import LoadFailed
from tests.serve.service_helpers import (
    RECURRENT,
    SPELLING,
    approximately,
    facts,
    is_gone,
    offline,
    run,
    serving,
    until,
    words,
)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A bundle that can be replaced."""
    return Path(shutil.copytree(SPELLING, tmp_path / "bundle"))


def replace(bundle: Path, other: Path) -> None:
    """Put another bundle in its place, as saving does."""
    shutil.copytree(other, bundle.with_name("new"))
    bundle.rename(bundle.with_name("old"))
    bundle.with_name("new").rename(bundle)
    shutil.rmtree(bundle.with_name("old"))


def test_requests_get_the_old_or_the_new_answer(bundle: Path):
    texts = words(40)
    old, new = offline(texts), offline(texts, RECURRENT)
    assert not approximately(old, new)

    async def work() -> None:
        seen: list[str] = []

        async def client(service: Service) -> None:
            while seen[-20:] != ["new"] * 20:
                found = facts(await service.generate("spelling", texts, {}))
                assert approximately(found, old) or approximately(found, new)  # never a mixture
                seen.append("old" if approximately(found, old) else "new")

        async with serving(bundle, workers=2, batch_tokens=50) as service:
            before, workers = service.models["spelling"], service.workers
            clients = [asyncio.create_task(client(service)) for _ in range(4)]
            await until(lambda: len(seen) > 10)
            replace(bundle, RECURRENT)
            await service.reload("spelling")
            await asyncio.gather(*clients)
            assert "old" in seen
            assert service.models["spelling"].fingerprint != before.fingerprint
            await until(lambda: all(map(is_gone, workers)))
            assert service.events.of("worker_died") == []

    run(work())


@pytest.mark.parametrize("damage", ["missing", "altered", "no bundle"])
def test_a_broken_bundle_keeps_the_old_one(bundle: Path, damage: str):
    async def work() -> None:
        async with serving(bundle, workers=2) as service:
            before, workers = service.models["spelling"], service.workers
            if damage == "missing":
                shutil.rmtree(bundle)
            elif damage == "altered":
                weights = bundle / "weights.safetensors"
                weights.rename(bundle / "kept")  # the mapped file itself stays as it is
                weights.write_bytes((bundle / "kept").read_bytes()[:-1] + b"x")
            else:
                (bundle / "manifest.json").unlink()
            with pytest.raises(LoadFailed, match="cannot serve model 'spelling'") as failed:
                await service.reload("spelling")
            assert "\n" not in str(failed.value)
            assert (service.models["spelling"], service.workers) == (before, workers)
            found = await service.generate("spelling", words(9), {})
            assert approximately(facts(found), offline(words(9)))

    run(work())


def test_a_killed_worker_keeps_its_version(bundle: Path):
    """A worker that is replaced answers with the loaded bundle, not with that on the disk."""

    async def work() -> None:
        async with serving(bundle) as service:
            replace(bundle, RECURRENT)
            for pid in service.workers:
                os.kill(pid, 9)
            found = await service.generate("spelling", words(30), {})
            assert approximately(facts(found), offline(words(30)))

    run(work())


def test_a_service_of_a_broken_bundle_does_not_start(tmp_path: Path):
    async def work() -> None:
        specs = [ModelSpec("good", SPELLING), ModelSpec("bad", tmp_path)]
        service = Service(specs, workers=1)
        with pytest.raises(LoadFailed, match=r"cannot serve model 'bad': .* has no manifest"):
            await service.start()
        assert not service.ready

    run(work())
