"""Installs the storage drivers (NFS, Lustre), and the vendors' operators and drivers for NICs and GPUs.

NICs come before GPUs: the GPU driver's RDMA module builds against the driver of the NICs. Node Feature
Discovery is installed once, with the first operator that needs it.
"""

from collections.abc import Mapping, Sequence

import pulumi

from infra.operator_settings.network_operator import NetworkOperatorSettings
from infra.platform.base import Layer, PlatformContext
from infra.platform.node_software import (
    amd_driver,
    amd_operator,
    dra_driver,
    efa_driver,
    gpu_operator,
    lustre_driver,
    network_operator,
    nfs_driver,
)
from infra.platform.operators.published import Published


class NodeSoftware(Layer):
    """`ready`: the releases and resources that pods of jobs need on their nodes."""

    def __init__(self, context: PlatformContext, parent: pulumi.Resource) -> None:
        software = context.settings.software
        super().__init__(context, "node-software", {}, parent)
        self._context = context
        self.ready: list[pulumi.Resource] = []
        if software.installs_nfs_driver:
            images = self._images(nfs_driver.CHART)
            values = nfs_driver.values(images, context.system_selector)
            self._publish(nfs_driver.CHART, nfs_driver.NAMESPACE, values, list(images.values()))
        if software.installs_lustre_driver:
            self.ready += [self.add(each) for each in lustre_driver.manifests()]
        self._efa()
        nics = self._network(software.network_operator) if software.network_operator else []
        gpus = self._gpus(nics)
        self._racks(gpus)
        self._amd([*nics, *gpus])
        self.register_outputs({})

    def _network(self, infiniband: NetworkOperatorSettings) -> list[pulumi.Resource]:
        images = self._images(network_operator.CHART)
        software = self._context.settings.software
        used = network_operator.images_used(infiniband, images, software.node_os)
        all_nodes, has_nfd = software.tolerates_all, self._installs_nfd()
        used = [image for image in used if has_nfd or image != images["nfd"]]
        values = network_operator.values(infiniband, images, tolerates_all=all_nodes, installs_nfd=has_nfd)
        ready = self._publish(network_operator.CHART, network_operator.NAMESPACE, values, used)
        found = [self.add(each, ready) for each in network_operator.features(infiniband)]
        manifest = network_operator.policy(infiniband, images, tolerates_all=all_nodes)
        policy = self.add(manifest, [*ready, *found])
        networks = [self.add(each, [policy]) for each in network_operator.networks(infiniband)]
        self.ready += [policy, *networks]
        return [policy, *networks]

    def _efa(self) -> None:
        fabrics = self._context.settings.software.efa_resource_claims
        if not fabrics:
            return
        images = self._images(efa_driver.CHART)
        values = efa_driver.values(images, fabrics)
        self._publish(efa_driver.CHART, efa_driver.NAMESPACE, values, list(images.values()))

    def _gpus(self, nics: Sequence[pulumi.Resource]) -> list[pulumi.Resource]:
        software = self._context.settings.software
        if software.gpu_operator is None:
            return []
        images = self._images(gpu_operator.CHART)
        has_nfd = self._installs_nfd(nics)
        values = gpu_operator.values(software.gpu_operator, software, images, installs_nfd=has_nfd)
        used = gpu_operator.images_used(software.gpu_operator, software, images, installs_nfd=has_nfd)
        return self._publish(gpu_operator.CHART, gpu_operator.NAMESPACE, values, used, nics)

    def _racks(self, gpus: Sequence[pulumi.Resource]) -> None:
        driver = self._context.settings.software.dra_driver
        if driver is None:
            return
        images = self._images(dra_driver.CHART)
        values = dra_driver.values(driver, images, self._context.system_selector)
        pods = dra_driver.CRITICAL_PODS if driver.needs_critical_quota else 0
        self._publish(
            dra_driver.CHART, dra_driver.NAMESPACE, values, list(images.values()), gpus, critical_pods=pods
        )

    def _amd(self, before: Sequence[pulumi.Resource]) -> None:
        software = self._context.settings.software
        operator = software.amd_operator
        if operator is None:
            return
        images = self._images(amd_operator.CHART)
        has_nfd = self._installs_nfd(before)
        values = amd_operator.values(images, installs_nfd=has_nfd)
        config = amd_operator.device_config(
            operator, software.image, images["init"], tolerates_all=software.tolerates_all
        )
        own = amd_operator.images_of(config)
        used = [images["operator"], *([images["nfd"]] if has_nfd else []), *own]
        if operator.driver_for:
            # After the NIC driver, since this driver builds against its peer memory interface.
            before = [*before, self.add(amd_driver.manifest(operator.driver_for), before)]
        ready = self._publish(amd_operator.CHART, amd_operator.NAMESPACE, values, used, before)
        self.ready.append(self.add(config, ready))

    def _installs_nfd(self, operators: Sequence[pulumi.Resource] = ()) -> bool:
        """Whether the next operator brings Node Feature Discovery: not after others, or where it exists."""
        return not operators and self._context.settings.software.installs_nfd

    def _images(self, chart: str) -> Mapping[str, str]:
        """References by name, each where the nodes get it from."""
        published = self._context.artifacts.published[chart]
        relocate = self._context.settings.software.image
        return {name: relocate(reference) for name, reference in published.images.items()}

    def _publish(
        self,
        chart: str,
        namespace: str,
        values: Mapping[str, object],
        images: Sequence[str],
        depends_on: Sequence[pulumi.Resource] = (),
        *,
        critical_pods: int = 0,
    ) -> list[pulumi.Resource]:
        made = Published(
            self._context,
            self._context.artifacts.published[chart],
            namespace,
            values=values,
            images=images,
            depends_on=depends_on,
            parent=self,
            critical_pods=critical_pods,
        )
        self.ready += made.ready
        return made.ready
