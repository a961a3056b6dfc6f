"""The image lint: whether an image has the libraries of a fabric where the loader would find them."""

import dataclasses

import pytest

import catalog
from catalog.image_lint import ImageContents, faults
from tests.tables import table

CASES = table(__file__)
LIBRARIES = "usr/lib/x86_64-linux-gnu"
VERBS = ImageContents(
    files=frozenset(
        {
            f"{LIBRARIES}/libibverbs.so.1.14.56.1",
            f"{LIBRARIES}/libmlx5.so.1.25.56.1",
            "etc/libibverbs.d/mlx5.driver",
        }
    ),
    links={
        "lib": "usr/lib",
        f"{LIBRARIES}/libibverbs.so.1": "libibverbs.so.1.14.56.1",
        f"{LIBRARIES}/libibverbs/libmlx5-rdmav34.so": "../libmlx5.so.1.25.56.1",
    },
)
"""The files of Debian's libibverbs1 and ibverbs-providers."""


def without(contents: ImageContents, *paths: str) -> ImageContents:
    links = {path: target for path, target in contents.links.items() if path not in paths}
    return dataclasses.replace(contents, files=contents.files - {*paths}, links=links)


def lacks(contents: ImageContents, fabric: str = "ib-ndr") -> list[str]:
    return [fault.where for fault in faults(contents, catalog.fabric(fabric))]


def test_an_image_with_debians_rdma_core_reaches_infiniband() -> None:
    assert lacks(VERBS) == []


@pytest.mark.parametrize(("removed", "lack"), CASES["missing"])
def test_each_missing_file_is_named_with_its_package(removed: str, lack: str) -> None:
    (fault,) = faults(without(VERBS, removed), catalog.fabric("ib-ndr"))
    assert fault.where == lack
    assert ("libibverbs1" if lack == "libibverbs.so.1" else "ibverbs-providers") in fault.fix


def test_a_library_is_found_where_the_loader_looks_and_nowhere_else() -> None:
    plugin, folder = "libnccl-net-ofi.so", "opt/amazon/ofi-nccl/lib"
    hidden = ImageContents(frozenset({f"{folder}/{plugin}"}))
    fault = next(fault for fault in faults(hidden, catalog.fabric("efav3")) if fault.where == plugin)
    assert f"at /{folder}/{plugin}" in fault.got
    assert "ld.so.conf.d" in fault.fix
    cached = dataclasses.replace(hidden, cached=frozenset({f"{folder}/{plugin}"}))
    output = dataclasses.replace(hidden, environment={"LD_LIBRARY_PATH": f"/nowhere:/{folder}"})
    assert plugin not in lacks(cached, "efav3")
    assert plugin not in lacks(output, "efav3")
    assert plugin in lacks(without(cached, f"{folder}/{plugin}"), "efav3")


def test_links_in_a_loop_resolve_to_nothing() -> None:
    around = ImageContents(frozenset(), {"bin": "usr/bin", "usr/bin/bash": "/bin/bash"})
    assert lacks(around, "roce") == ["/bin/bash"]
    assert lacks(ImageContents(frozenset({"usr/bin/bash"}), {"bin": "usr/bin"}), "roce") == []


@pytest.mark.parametrize(("file", "got"), CASES["nccl"])
def test_nccl_is_the_version_that_the_nodes_plugin_is_qualified_for(file: str, got: str) -> None:
    contents = ImageContents(frozenset({"bin/bash", file}))
    assert [fault.got for fault in faults(contents, catalog.fabric("tcpxo"))] == ([got] if got else [])


def test_efa_needs_more_than_infiniband_and_plain_tcp_needs_nothing() -> None:
    assert lacks(VERBS, "efav3") == [
        "libnccl-net-ofi.so",
        "libfabric.so.1",
        "libefa.so.1",
        "libibverbs/libefa-rdmav*.so",
        "/etc/libibverbs.d/efa.driver",
    ]
    assert lacks(ImageContents(frozenset()), "tcp") == []


def test_a_class_of_gpus_with_a_separate_network_refuses_to_fall_back_to_sockets() -> None:
    """NCCL_NET, and the check before the ranks start, belong to the devices of the class."""
    for fabric in catalog.fabrics():
        has_network = any(
            (fabric.resources, fabric.interfaces, fabric.claim, fabric.attachments, fabric.setup)
        )
        assert ("NCCL_NET" in fabric.environment) == has_network, fabric.name
        assert bool(fabric.image_files) == has_network, fabric.name
        assert bool(fabric.node_files) == has_network, fabric.name
        # NVIDIA's NICs, EFA and gIB use RDMA; TCPXO copies in its daemon.
        assert fabric.pins_memory == any("/dev/infiniband/uverbs*" in file for file in fabric.node_files)
