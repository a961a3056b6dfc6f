"""ConfigMaps in each team's namespace with the NCCL topology file of each fabric that needs one.

A virtual machine hides which GPU and NIC share a PCIe switch, so NCCL reads the topology from this file.
Format: NCCL user guide, NCCL_TOPO_FILE; PCI classes of bridges, 3D controllers and InfiniBand.
"""

from collections.abc import Iterable
from itertools import count
from xml.etree import ElementTree

import pulumi

import catalog
from catalog import NcclTopology
from infra.common import names
from infra.platform.base import Layer, PlatformContext, metadata
from infra.platform.fabric import TOPOLOGY_FILE, topology_name
from infra.platform.namespaces import Namespaces

_BRIDGE, _GPU, _NIC = "0x060400", "0x030200", "0x020700"
_LANES = "16"


class Topologies(Layer):
    """A ConfigMap per team and fabric class."""

    def __init__(self, context: PlatformContext, namespaces: Namespaces, parent: pulumi.Resource) -> None:
        files = topologies_of(context.fabrics)
        super().__init__(context, "topologies", {"fabrics": list(files)}, parent)
        for team in context.stack.teams:
            namespace = names.team_namespace(team.name)
            for fabric, text in files.items():
                manifest = {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "metadata": metadata(topology_name(fabric), namespace),
                    "data": {TOPOLOGY_FILE: text},
                }
                self.add(manifest, [namespaces.by_name[namespace]])
        self.register_outputs({})


def topologies_of(fabrics: Iterable[str]) -> dict[str, str]:
    """Return fabric class → the file of its nodes, for those that need one."""
    found = {fabric: catalog.fabric(fabric).topology for fabric in fabrics}
    return {fabric: render(topology) for fabric, topology in found.items() if topology}


def render(topology: NcclTopology) -> str:
    """Write the file: processors, the switches below each, and the pairs of GPU and NIC behind those."""
    system = ElementTree.Element("system", version="1")
    number = count(1)
    for index, node in enumerate(topology.numa):
        cpu = ElementTree.SubElement(
            system,
            "cpu",
            numaid=str(index),
            affinity=node.affinity,
            arch="x86_64",
            vendor=topology.vendor,
            familyid=str(topology.family),
            modelid=str(topology.model),
        )
        for pairs in node.switches:
            # A bus number that no machine has: VMs do not show the PCIe switch.
            switch = _device(cpu, f"ffff:ff:{next(number):02x}.0", _BRIDGE, topology.link)
            for gpu, nic in pairs:
                _device(switch, f"{gpu}:00:00.0", _GPU, topology.link)
                _device(switch, f"{nic}:00:00.0", _NIC, topology.link)
    ElementTree.indent(system)
    return ElementTree.tostring(system, encoding="unicode") + "\n"


def _device(parent: ElementTree.Element, bus: str, kind: str, link: str) -> ElementTree.Element:
    return ElementTree.SubElement(
        parent, "pci", {"busid": bus, "class": kind, "link_speed": link, "link_width": _LANES}
    )
