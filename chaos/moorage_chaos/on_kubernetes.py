"""What ``run_all.py --driver kubernetes`` does before a lane starts: choose the cluster, deploy if asked for."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from moorage_chaos.deploy import images
from moorage_chaos.deploy.commands import box_inside
from moorage_chaos.deploy.providers import Provider, chosen, detect
from moorage_chaos.deploy.system import deploy, loaded
from moorage_chaos.drivers.base import DriverError
from moorage_chaos.drivers.kubernetes import KubernetesConfig
from moorage_chaos.drivers.kubernetes_api import Api, Where
from moorage_chaos.drivers.local import LocalConfig
from moorage_chaos.kubernetes_options import NAMESPACE

SAMPLE = "chat"
"""Name of the RealtimeServer that ``--deploy`` makes."""


@dataclass(frozen=True)
class Options:
    """What lanes need to know, as JSON on their stdin."""

    context: str = ""
    kubeconfig: str = ""
    namespace: str = NAMESPACE
    name: str = ""
    connect: str | None = None
    provider: str = "other"
    cluster: str = ""
    gentle: bool = False
    image: str = ""
    prefix: list[str] = field(default_factory=list)
    """Put before the command of a lane, so that it runs where addresses of the cluster lead somewhere."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def config(self, local: LocalConfig, say: Callable[[str], None]) -> KubernetesConfig:
        """The driver's configuration; folder, journal and mutant as for the local one."""
        return KubernetesConfig(
            folder=local.folder,
            journal=local.journal,
            where=Where(self.context, self.kubeconfig),
            namespace=self.namespace,
            lane=local.name,
            name=self.name,
            connect=self.connect,  # type: ignore[arg-type]  # argparse checked it
            provider=Provider(self.provider, self.cluster),  # type: ignore[arg-type]  # written by prepare()
            gentle=self.gentle,
            image=self.image,
            mutant=local.mutant,
            say=say,
        )


def prepare(arguments: argparse.Namespace, tell: Callable[[str], None]) -> Options:
    """Raises DriverError if there is no such cluster, or the deployment failed."""
    return asyncio.run(_prepare(arguments, tell))


async def _prepare(arguments: argparse.Namespace, tell: Callable[[str], None]) -> Options:
    context = arguments.context
    provider = Provider("other")
    if arguments.deploy is not None:
        provider = chosen(arguments.deploy, context or _current())
        if await asyncio.to_thread(provider.start):
            tell(f"started minikube profile {provider.cluster}")
        context = context or (provider.cluster if provider.kind == "minikube" else "")
    where = Where(context)
    if not where.in_cluster:
        context = context or _current()
        provider = provider if arguments.deploy is not None else await asyncio.to_thread(detect, context)
    name, image = arguments.name, ""
    api = await Api.connect(Where(context))
    try:
        if arguments.deploy is not None:
            name = name or SAMPLE
            image = (await deploy(api, provider, arguments.namespace, name, tell))[images.HARNESS.name]
        elif provider.reference(images.HARNESS) in await loaded(api):
            image = provider.reference(images.HARNESS)
    finally:
        await api.close()
    return Options(
        context=context,
        namespace=arguments.namespace,
        name=name,
        connect=arguments.connect,
        provider=provider.kind,
        cluster=provider.cluster,
        gentle=arguments.safe_only,
        image=image,
        prefix=box_inside() if provider.kind == "testcluster" else [],
    )


def archives(option: str, tell: Callable[[str], None]) -> None:
    """``--deploy archive:FOLDER``: write every image there. Raises DriverError."""
    provider = chosen(option, "")
    for image in images.ALL:
        tell(f"{provider.provide(image)} -> {provider.cluster}")


def _current() -> str:
    """Name of the kubeconfig's current context. Raises DriverError."""
    from kubernetes.aio import config

    try:
        _, current = config.list_kube_config_contexts(Where().file)
    except (config.ConfigException, OSError) as error:
        raise DriverError(f"no way to a Kubernetes cluster: {error}") from error
    return str(current["name"])
