"""What env knows of a host, as commands that work on ranks get it."""

from __future__ import annotations

import msgspec

from distdoctor.cli.hosts_of_ranks import gpus_in_use, named_places, read_looks
from distdoctor.cli.nccl_bench_hosts import hardware_of, network_report
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.gpu import GpuDevice, GpuFacts, GpuProcess, NvLink
from distdoctor.env.facts.network import Interface, NetworkFacts, RdmaPort
from distdoctor.env.facts.variables import VariableFacts
from distdoctor.ranks.places import Place

GIB = 1 << 30


def gpu(index: int, **fields: object) -> GpuDevice:
    links = tuple(NvLink(link=link, active=True, speed_gbps=26.562) for link in range(18))
    known = {
        "name": "NVIDIA H100 80GB HBM3",
        "uuid": f"GPU-{index}",
        "pci": f"00000000:{index:02X}:00.0",
        "nvlinks": links,
        "processes": (),
    }
    return GpuDevice(index=index, **{**known, **fields})  # type: ignore[arg-type]


def host(*devices: GpuDevice, environment: dict[str, str] | None = None, **network: object) -> EnvFacts:
    return EnvFacts(
        host_name="host-a",
        gpus=GpuFacts(devices=devices, num_nvswitches=4),
        network=NetworkFacts(**network),  # type: ignore[arg-type]
        variables=VariableFacts(environment=environment or {}),
    )


def port(device: str, state: str = "ACTIVE") -> RdmaPort:
    return RdmaPort(device=device, port=1, link_layer="InfiniBand", state=state, rate_gbit=400.0)


def test_links_ports_and_switches_become_the_hardware() -> None:
    facts = host(gpu(0), gpu(1), rdma_ports=(port("mlx5_0"), port("mlx5_1", "DOWN")), peermem_registered=True)
    (hardware,) = hardware_of({"host-a": facts})
    assert hardware.gpu_models == ("NVIDIA H100 80GB HBM3",) * 2
    assert (hardware.nvlinks_per_gpu, hardware.nvlink_gbps, hardware.has_nvswitch) == (18, 26.562, True)
    assert [(nic.name, nic.kind, nic.rate_gbit) for nic in hardware.nics or ()] == [
        ("mlx5_0/1", "infiniband", 400.0)
    ], "a port that is down carries nothing"
    assert hardware.gpudirect_rdma is True


def test_without_rdma_the_cards_are_the_ports() -> None:
    cards = (
        Interface(name="eth0", is_up=True, is_virtual=False, speed_mbps=25_000),
        Interface(name="docker0", is_up=True, is_virtual=True),
        Interface(name="eth1", is_up=False, is_virtual=False),
    )
    (hardware,) = hardware_of({"host-a": host(rdma_ports=(), interfaces=cards)})
    assert [(nic.name, nic.rate_gbit) for nic in hardware.nics or ()] == [("eth0", 25.0)]


def test_what_was_not_read_stays_unknown() -> None:
    (hardware,) = hardware_of({"host-a": EnvFacts(host_name="host-a")})
    assert hardware.gpu_models is None and hardware.nics is None and hardware.gpudirect_rdma is None


def test_a_job_on_a_gpu_of_ours_is_named() -> None:
    busy = gpu(1, processes=(GpuProcess(pid=4711, used_bytes=20 * GIB),), memory_used_bytes=20 * GIB)
    told = gpus_in_use([host(gpu(0), busy)], ranks_here=2)
    assert told is not None and "GPU 1 of host-a" in told and "4711" in told


def test_a_job_on_a_gpu_that_we_do_not_use_is_none_of_our_business() -> None:
    busy = gpu(1, processes=(GpuProcess(pid=4711, used_bytes=20 * GIB),), memory_used_bytes=20 * GIB)
    assert gpus_in_use([host(gpu(0), busy)], ranks_here=1) is None
    hidden = host(gpu(0), busy, environment={"CUDA_VISIBLE_DEVICES": "0"})
    assert gpus_in_use([hidden], ranks_here=2) is None


def test_a_monitor_that_holds_little_is_no_job() -> None:
    watched = gpu(0, processes=(GpuProcess(pid=1, used_bytes=100 << 20),), memory_used_bytes=600 << 20)
    assert gpus_in_use([host(watched)], ranks_here=1) is None


def test_memory_without_a_visible_process_counts_when_the_gpu_works() -> None:
    """In a container NVML does not list the processes of others."""
    busy = gpu(0, processes=(), memory_used_bytes=20 * GIB, utilisation_pct=97)
    assert gpus_in_use([host(busy)], ranks_here=1) is not None
    idle = gpu(0, processes=(), memory_used_bytes=20 * GIB, utilisation_pct=0)
    assert gpus_in_use([host(idle)], ranks_here=1) is None


def test_places_get_the_index_that_nvml_has_for_their_gpu() -> None:
    place = Place(rank=3, host="host-a", local_rank=0, gpu_uuid="GPU-5", device="cuda:0")
    (named,) = named_places((place,), {"host-a": host(gpu(4), gpu(5))})
    assert (named.gpu_index, named.gpu_pci) == (5, "00000000:05:00.0")


def test_what_a_peer_sends_is_facts_or_nothing() -> None:
    places = (Place(rank=0, host="a", local_rank=0), Place(rank=1, host="b", local_rank=0))
    looks = {0: msgspec.json.encode(EnvFacts(host_name="a")), 1: b'{"host_name": 7}', 9: b"{}"}
    assert list(read_looks(looks, places)) == ["a"]


def test_gloo_runs_are_not_told_of_nccls_settings() -> None:
    facts = host(environment={"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"})
    places = (Place(rank=0, host="host-a", local_rank=0),)
    over_nccl = network_report({"host-a": facts}, places, backend="nccl")
    over_gloo = network_report({"host-a": facts}, places, backend="gloo")
    assert over_nccl is not None and any(each.id.startswith("nccl-") for each in over_nccl.findings)
    assert over_gloo is not None and not any(each.id.startswith("nccl-") for each in over_gloo.findings)
