"""What torch's caching allocator reserves: every rule with numbers worked out by hand, and what holds for all orders."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distdoctor.errors import UsageError
from distdoctor.oom.allocator.blocks import Block
from distdoctor.oom.allocator.caching import CachingAllocator
from distdoctor.oom.allocator.options import AllocatorOptions, parse_allocator_conf
from distdoctor.oom.allocator.replay import replay
from distdoctor.oom.allocator.sizes import rounded_request, segment_for
from distdoctor.oom.memory.log import Event, MemoryLog, Phase, Place, Storage
from distdoctor.units import GIB, MIB

EXPANDABLE = AllocatorOptions(expandable_segments=True)


def allocator(conf: str = "", **sizes: int) -> CachingAllocator:
    return CachingAllocator(parse_allocator_conf(conf), **sizes)


def allocated(allocator: CachingAllocator, requested: int, stream: int = 0) -> Block:
    block = allocator.allocate(requested, stream)
    assert block is not None
    return block


def log_of(*events: tuple[int, int], streams: dict[int, int] | None = None) -> MemoryLog:
    """A log of (storage, bytes from now on)."""
    num_storages = max((storage for storage, _ in events), default=-1) + 1
    return MemoryLog(
        places=[Place(step=1, phase=Phase.FORWARD)],
        storages=[Storage(stream=(streams or {}).get(each, 0)) for each in range(num_storages)],
        events=[Event(storage, num_bytes, 0) for storage, num_bytes in events],
    )


class TestSizes:
    def test_a_block_is_a_multiple_of_512_bytes(self) -> None:
        plain = AllocatorOptions().roundup_power2_divisions
        assert [rounded_request(each, plain) for each in (1, 512, 513, 1025)] == [512, 512, 1024, 1536]

    def test_segments_are_2_mib_20_mib_or_the_request_in_steps_of_2_mib(self) -> None:
        # Up to 1 MiB from 2 MiB; below 10 MiB from 20 MiB; 10 MiB itself already has a segment of its own.
        assert segment_for(MIB) == 2 * MIB
        assert segment_for(MIB + 512) == 20 * MIB
        assert segment_for(10 * MIB - 512) == 20 * MIB
        assert segment_for(10 * MIB) == 10 * MIB
        assert segment_for(11 * MIB) == 12 * MIB

    def test_rounding_to_quarters_of_a_power_of_two(self) -> None:
        # Between 4 and 8 MiB four steps of 1 MiB: 5 MiB and a byte become 6 MiB; a power of two stays.
        four = (4,) * 16
        assert rounded_request(5 * MIB + 1, four) == 6 * MIB
        assert rounded_request(4 * MIB, four) == 4 * MIB
        # 1200 bytes are fewer than 512 x 4: the ordinary rounding.
        assert rounded_request(1200, four) == 1536

    def test_each_power_of_two_can_have_its_own_rounding(self) -> None:
        options = parse_allocator_conf("roundup_power2_divisions:[64:8,128:2,256:4,512:2,1024:4,>:1]")
        # The first is for everything below as well, `>` for everything above.
        assert options.roundup_power2_divisions == (8,) * 7 + (2, 4, 2, 4) + (1,) * 5
        # From 128 to 256 MiB there are halves: 130 MiB become 192 MiB.
        assert rounded_request(130 * MIB, options.roundup_power2_divisions) == 192 * MIB


class TestPools:
    def test_small_requests_share_a_segment(self) -> None:
        it = allocator()
        for _ in range(2):
            allocated(it, MIB)
        assert (it.allocated, it.reserved) == (2 * MIB, 2 * MIB)
        allocated(it, 1)
        assert (it.allocated, it.reserved) == (2 * MIB + 512, 4 * MIB)

    def test_requests_of_some_mib_share_20_mib(self) -> None:
        it = allocator()
        # 4 x 5 MiB fill one segment; the fifth needs another.
        for _ in range(4):
            allocated(it, 5 * MIB)
        assert it.reserved == 20 * MIB
        allocated(it, 5 * MIB)
        assert it.reserved == 40 * MIB

    def test_a_rest_of_1_mib_stays_with_its_block(self) -> None:
        it = allocator()
        # 11 MiB from 12 MiB leave 1 MiB, which is not more than kSmallSize: the block has 12 MiB.
        allocated(it, 11 * MIB)
        assert (it.allocated, it.requested, it.inactive_split) == (12 * MIB, 11 * MIB, 0)
        # 11 MiB less 512 bytes leave 1 MiB and 512 bytes, which are cut off.
        allocated(it, 11 * MIB - 512)
        assert (it.allocated - 12 * MIB, it.inactive_split) == (11 * MIB - 512, MIB + 512)

    def test_small_and_large_requests_never_share(self) -> None:
        it = allocator()
        it.free(allocated(it, 100 * MIB))
        allocated(it, MIB)
        assert it.reserved == 102 * MIB

    def test_streams_never_share(self) -> None:
        it = allocator()
        it.free(allocated(it, 30 * MIB))
        allocated(it, 30 * MIB)
        assert it.reserved == 30 * MIB
        allocated(it, 30 * MIB, stream=1)
        assert it.reserved == 60 * MIB

    def test_the_smallest_free_block_that_fits_is_taken(self) -> None:
        it = allocator()
        large, middle = allocated(it, 60 * MIB), allocated(it, 40 * MIB)
        it.free(large)
        it.free(middle)
        address = middle.address
        assert allocated(it, 30 * MIB).address == address
        assert it.reserved == 100 * MIB

    def test_neighbours_are_joined_when_freed(self) -> None:
        it = allocator()
        blocks = [allocated(it, 5 * MIB) for _ in range(4)]
        for at in (0, 2, 1, 3):
            it.free(blocks[at])
        assert (it.allocated, it.inactive_split) == (0, 0)
        allocated(it, 20 * MIB - 512)
        assert it.reserved == 20 * MIB

    def test_between_equal_blocks_the_oldest_goes_first_and_before_2_12_the_lowest(self) -> None:
        def chosen(is_oldest_first: bool) -> int:
            it = CachingAllocator(AllocatorOptions(is_oldest_first=is_oldest_first))
            first, second = allocated(it, 20 * MIB), allocated(it, 20 * MIB)
            it.free(first)
            # 5 MiB are made as a new block in front of the first segment, and take its rest in when they are freed:
            # the free block of the first segment is now newer than that of the second.
            it.free(allocated(it, 5 * MIB))
            it.free(second)
            return (allocated(it, 20 * MIB).address - 2**44) // (20 * MIB)

        assert chosen(True) == 1
        assert chosen(False) == 0


class TestGivingBack:
    def test_free_segments_are_given_back_before_memory_runs_out(self) -> None:
        it = allocator(capacity_bytes=100 * MIB)
        it.free(allocated(it, 60 * MIB))
        # 60 MiB are reserved and free, but too small; with them given back 80 MiB fit.
        allocated(it, 80 * MIB)
        assert (it.reserved, it.num_retries) == (80 * MIB, 1)

    def test_a_segment_with_one_block_in_use_stays(self) -> None:
        it = allocator(capacity_bytes=100 * MIB)
        large = allocated(it, 60 * MIB)
        it.free(large)
        allocated(it, 2 * MIB)  # cut from the 60 MiB
        assert it.allocate(80 * MIB) is None
        assert (it.allocated, it.reserved, it.num_retries) == (2 * MIB, 60 * MIB, 1)
        # After the failure what fits is still served.
        allocated(it, 40 * MIB)

    def test_emptying_the_cache_leaves_what_is_in_use(self) -> None:
        it = allocator()
        it.free(allocated(it, 60 * MIB))
        allocated(it, 1)
        it.empty_cache()
        assert it.reserved == 2 * MIB

    def test_torchs_own_cap_refuses_before_the_driver(self) -> None:
        it = allocator(capacity_bytes=GIB, allowed_bytes=100 * MIB)
        allocated(it, 90 * MIB)
        assert it.allocate(20 * MIB) is None
        allocated(it, 10 * MIB)

    def test_oversize_blocks_are_not_cut_and_serve_only_large_requests(self) -> None:
        it = allocator("max_split_size_mb:64")
        it.free(allocated(it, 100 * MIB))
        # 30 MiB are below the limit and may not have it; 70 MiB are 30 MiB less, more than the 20 MiB of rounding.
        allocated(it, 30 * MIB)
        allocated(it, 70 * MIB)
        assert it.reserved == 200 * MIB
        # 90 MiB are near enough, and have all of it.
        block = allocated(it, 90 * MIB)
        assert (it.reserved, block.size) == (200 * MIB, 100 * MIB)

    def test_of_oversize_blocks_only_so_many_are_given_back_as_are_needed(self) -> None:
        it = allocator("max_split_size_mb:64", capacity_bytes=300 * MIB)
        blocks = [allocated(it, size * MIB) for size in (70, 100, 110)]
        for each in blocks:
            it.free(each)
        # 140 MiB: no block has them; the two largest are given back, and the retry that frees all is not needed.
        allocated(it, 140 * MIB)
        assert (it.reserved, it.num_retries) == (210 * MIB, 0)

    def test_garbage_is_collected_above_the_threshold_when_there_is_a_cap(self) -> None:
        def reserved(**cap: int) -> int:
            it = allocator("garbage_collection_threshold:0.5", **cap)
            old, new = allocated(it, 40 * MIB), allocated(it, 30 * MIB)
            it.free(old)
            allocated(it, 2 * MIB, stream=1)  # the old block grows older by one search
            it.free(new)
            allocated(it, 80 * MIB)
            return it.reserved

        # 40 + 30 + 20 MiB are held, less than half of 200 MiB: nothing is collected.
        assert reserved(allowed_bytes=200 * MIB) == 170 * MIB
        # Half of 176 MiB is 88 MiB, and 90 MiB are held: the block that was free for longer goes, the other stays.
        assert reserved(allowed_bytes=176 * MIB) == 130 * MIB
        assert reserved() == 170 * MIB


class TestExpandable:
    def test_the_large_pool_grows_by_20_mib_and_the_small_by_2_mib(self) -> None:
        it = CachingAllocator(EXPANDABLE)
        allocated(it, 30 * MIB)
        assert it.reserved == 40 * MIB
        # 10 MiB of the second page are free: 25 MiB more need 15 MiB, one page.
        allocated(it, 25 * MIB)
        assert it.reserved == 60 * MIB
        allocated(it, 1)
        assert it.reserved == 62 * MIB
        assert it.inactive_split == 0

    def test_any_rest_is_cut_off(self) -> None:
        it = CachingAllocator(EXPANDABLE)
        # Without expandable segments this block would have 12 MiB.
        allocated(it, 11 * MIB)
        assert it.allocated == 11 * MIB

    def test_sizes_that_change_fragment_segments_and_not_expandable_ones(self) -> None:
        # Each step asks for 2 MiB more than the last one, and keeps a piece that no earlier rest can hold:
        # 40 MiB and a piece of 21, 42 and 22, ... 78 and none.
        events = []
        for step in range(20):
            events += [(2 * step, (40 + 2 * step) * MIB), (2 * step, 0), (2 * step + 1, (21 + step) * MIB)]
        log = log_of(*events[:-2])
        fragmented = replay(log, options=AllocatorOptions())
        grown = replay(log, options=EXPANDABLE)
        # 19 pieces of 21 to 39 MiB and the last 78 MiB.
        assert fragmented.peak_requested_bytes == grown.peak_requested_bytes == (570 + 78) * MIB
        # A segment of its own for each step: 40 + 42 + ... + 78. The rests, 19 + 20 + ... + 37 MiB, cannot be given back.
        assert fragmented.peak_reserved_bytes == 1180 * MIB
        assert fragmented.inactive_split_at_reserved_peak_bytes == 532 * MIB
        # 648 MiB in whole pages of 20 MiB.
        assert grown.peak_reserved_bytes == 660 * MIB
        # So that a device with 700 MiB is too small for one of them.
        assert replay(log, options=AllocatorOptions(), capacity_bytes=700 * MIB).out_of_memory is not None
        assert replay(log, options=EXPANDABLE, capacity_bytes=700 * MIB).out_of_memory is None

    def test_whole_free_pages_are_given_back_even_beside_blocks_in_use(self) -> None:
        it = CachingAllocator(EXPANDABLE)
        allocated(it, 10 * MIB)
        large = allocated(it, 100 * MIB)
        allocated(it, 10 * MIB)
        assert it.reserved == 120 * MIB
        it.free(large)
        it.empty_cache()
        # Of the bytes from 10 to 110 MiB the pages from 20 to 100 MiB are wholly free.
        assert it.reserved == 40 * MIB
        # Mapped again where they were.
        allocated(it, 100 * MIB)
        assert it.reserved == 120 * MIB

    def test_a_segment_that_is_free_goes_as_a_whole(self) -> None:
        it = CachingAllocator(EXPANDABLE)
        it.free(allocated(it, 30 * MIB))
        it.empty_cache()
        assert it.reserved == 0

    def test_out_of_memory_when_no_page_is_left(self) -> None:
        it = CachingAllocator(EXPANDABLE, capacity_bytes=100 * MIB)
        allocated(it, 70 * MIB)
        assert it.allocate(40 * MIB) is None
        assert (it.reserved, it.num_retries) == (80 * MIB, 1)


class TestReplay:
    def test_nothing_costs_nothing(self) -> None:
        result = replay(log_of(), options=AllocatorOptions())
        assert (result.peak_reserved_bytes, result.peak_reserved_event, result.curve) == (0, None, ())
        result = replay(log_of((0, 0), (1, 0)), options=AllocatorOptions())
        assert (result.peak_allocated_bytes, result.peak_reserved_bytes) == (0, 0)

    def test_peaks_are_told_with_their_events(self) -> None:
        # 19 MiB and a byte are served from the 20 MiB that were freed: nothing more is reserved after event 1.
        log = log_of((0, 30 * MIB), (1, 20 * MIB), (1, 0), (2, 19 * MIB + 1), (2, 0), (0, 0))
        result = replay(log, options=AllocatorOptions())
        assert (result.peak_reserved_bytes, result.peak_reserved_event) == (50 * MIB, 1)
        assert (result.peak_allocated_bytes, result.peak_allocated_event) == (50 * MIB, 1)
        assert (result.reserved_at_allocated_peak_bytes, result.allocated_at_reserved_peak_bytes) == (
            50 * MIB,
            50 * MIB,
        )
        assert (result.final_allocated_bytes, result.final_reserved_bytes) == (0, 50 * MIB)

    def test_the_requested_peak_has_no_rounding(self) -> None:
        result = replay(log_of((0, 100), (1, 11 * MIB)), options=AllocatorOptions())
        assert result.peak_requested_bytes == 11 * MIB + 100
        assert result.peak_allocated_bytes == 12 * MIB + 512

    def test_a_storage_that_grows_holds_old_and_new_at_once(self) -> None:
        result = replay(log_of((0, 30 * MIB), (0, 40 * MIB)), options=AllocatorOptions())
        assert (result.peak_allocated_bytes, result.final_allocated_bytes) == (70 * MIB, 40 * MIB)
        assert result.peak_allocated_event == 1
        assert result.final_reserved_bytes == 70 * MIB

    def test_each_storage_lives_on_its_stream(self) -> None:
        events = ((0, 30 * MIB), (0, 0), (1, 30 * MIB))
        same = replay(log_of(*events), options=AllocatorOptions())
        other = replay(log_of(*events, streams={1: 7}), options=AllocatorOptions())
        assert (same.peak_reserved_bytes, other.peak_reserved_bytes) == (30 * MIB, 60 * MIB)

    def test_running_out_of_memory_is_told_and_ends_the_replay(self) -> None:
        log = log_of((0, 60 * MIB), (1, 50 * MIB), (2, 10 * MIB))
        result = replay(log, options=AllocatorOptions(), capacity_bytes=100 * MIB)
        failed = result.out_of_memory
        assert failed is not None
        assert (failed.event, failed.requested_bytes) == (1, 50 * MIB)
        assert (failed.allocated_bytes, failed.reserved_bytes) == (60 * MIB, 60 * MIB)
        assert result.curve[-1].event == 1
        assert result.num_retries == 1
        assert replay(log, options=AllocatorOptions(), capacity_bytes=120 * MIB).out_of_memory is None

    def test_a_retry_that_helps_is_counted(self) -> None:
        log = log_of((0, 60 * MIB), (0, 0), (1, 80 * MIB))
        result = replay(log, options=AllocatorOptions(), capacity_bytes=100 * MIB)
        assert (result.num_retries, result.out_of_memory) == (1, None)
        assert result.peak_reserved_bytes == 80 * MIB

    def test_a_share_of_the_device_is_a_cap(self) -> None:
        options = parse_allocator_conf("per_process_memory_fraction:0.5")
        log = log_of((0, 60 * MIB))
        assert replay(log, options=options, capacity_bytes=100 * MIB).out_of_memory is not None
        whole = replay(log, options=options, capacity_bytes=100 * MIB, device_bytes=128 * MIB)
        assert whole.out_of_memory is None

    def test_the_curve_keeps_its_peaks_in_few_points(self) -> None:
        events = [(each, MIB) for each in range(1000)] + [(each, 0) for each in range(1000)]
        result = replay(log_of(*events), options=AllocatorOptions(), max_points=50)
        assert len(result.curve) == 50
        assert max(each.allocated for each in result.curve) == result.peak_allocated_bytes == 1000 * MIB
        assert max(each.reserved for each in result.curve) == result.peak_reserved_bytes
        assert result.curve[-1].event == 1999


class TestSettings:
    def test_nothing_set_is_torchs_default(self) -> None:
        assert parse_allocator_conf("") == AllocatorOptions() == parse_allocator_conf("  ")

    def test_what_acts_is_read(self) -> None:
        options = parse_allocator_conf(
            "expandable_segments:True, max_split_size_mb:512, garbage_collection_threshold:0.8,"
            "per_process_memory_fraction:0.9, roundup_power2_divisions:8, large_segment_size_mb:64"
        )
        assert options.expandable_segments
        assert options.max_split_size_bytes == 512 * MIB
        assert options.garbage_collection_threshold == 0.8
        assert options.per_process_memory_fraction == 0.9
        assert options.roundup_power2_divisions == (8,) * 16
        assert options.large_segment_bytes == 64 * MIB
        assert options.notes == ()

    def test_the_last_of_two_equal_keys_wins(self) -> None:
        options = parse_allocator_conf("expandable_segments:True,expandable_segments:False")
        assert not options.expandable_segments

    def test_what_does_not_act_is_noted(self) -> None:
        notes = parse_allocator_conf(
            "garbage_collection_threshold:0.8,frobnicate:[1:2,3:4],backend:native"
        ).notes
        assert len(notes) == 2
        assert "`frobnicate` is unknown here" in notes[0]
        assert "acts only with a cap" in notes[1]
        assert "pinned" in parse_allocator_conf("pinned_use_background_threads:True").notes[0]

    def test_the_drivers_own_pool_is_not_modelled_and_said_so(self) -> None:
        options = parse_allocator_conf("backend:cudaMallocAsync")
        assert options.uses_driver_pool
        assert "not modelled" in options.notes[0]

    @pytest.mark.parametrize(
        "text",
        [
            "expandable_segments",
            "expandable_segments:",
            "expandable_segments:true",
            "expandable_segments=True",
            "expandable_segments:True,,max_split_size_mb:64",
            "expandable_segments:True max_split_size_mb:64",
            "max_split_size_mb:19",
            "max_split_size_mb:-1",
            "max_split_size_mb:1_000",
            "max_split_size_mb:64.5",
            "max_split_size_mb:[64]",
            "max_split_size_mb:" + "9" * 40,
            "max_non_split_rounding_mb:10",
            "large_segment_size_mb:10",
            "large_segment_size_mb:64,max_split_size_mb:32",
            "garbage_collection_threshold:0",
            "garbage_collection_threshold:1",
            "garbage_collection_threshold:nan",
            "per_process_memory_fraction:1.5",
            "roundup_power2_divisions:3",
            "roundup_power2_divisions:[256:3]",
            "roundup_power2_divisions:[100:4]",
            "roundup_power2_divisions:[0:4]",
            "roundup_power2_divisions:[256:1,512",
            "roundup_power2_divisions:[256:1;512:2]",
            "backend:malloc",
            ":",
            "[]",
            "a" * 5000,
        ],
    )
    def test_nonsense_is_refused(self, text: str) -> None:
        with pytest.raises(UsageError):
            parse_allocator_conf(text)

    @given(st.text(alphabet="abc_:,[]>0123456789. TrueFals", max_size=60))
    def test_any_text_is_read_or_refused(self, text: str) -> None:
        with suppress(UsageError):
            parse_allocator_conf(text)


CONFS = (
    "",
    "expandable_segments:True",
    "max_split_size_mb:20",
    "roundup_power2_divisions:4",
    "garbage_collection_threshold:0.5",
    "max_split_size_mb:32,expandable_segments:True",
)

# Sizes around every threshold, on three streams; a negative number frees one of the live blocks.
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from((1, 512, 513, MIB, MIB + 1, 5 * MIB, 10 * MIB, 11 * MIB, 19 * MIB, 33 * MIB)),
            st.integers(0, 2),
        ),
        st.tuples(st.integers(-50, -1), st.just(0)),
    ),
    max_size=120,
)


@settings(max_examples=150, deadline=None)
@given(STEPS, st.sampled_from(CONFS), st.sampled_from((None, 64 * MIB, 256 * MIB)))
def test_books_balance_in_any_order(steps: list[tuple[int, int]], conf: str, capacity: int | None) -> None:
    it = CachingAllocator(parse_allocator_conf(conf), capacity_bytes=capacity, allowed_bytes=capacity)
    live: list[Block] = []
    for size, stream in steps:
        if size > 0:
            block = it.allocate(size, stream)
            if block is not None:
                live.append(block)
        elif live:
            it.free(live.pop(size % len(live)))
        assert it.allocated == sum(each.size for each in live)
        assert it.requested == sum(each.requested for each in live)
        assert it.requested <= it.allocated <= it.reserved
        assert 0 <= it.inactive_split <= it.reserved - it.allocated
        assert capacity is None or it.reserved <= capacity
    spans = sorted((each.address, each.address + each.size) for each in live)
    assert all(first[1] <= second[0] for first, second in pairwise(spans))
    for each in live:
        it.free(each)
    assert (it.allocated, it.requested, it.inactive_split) == (0, 0, 0)
    # Everything was joined again: no segment keeps a piece back.
    it.empty_cache()
    assert it.reserved == 0


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 40 * MIB)), max_size=80), st.sampled_from(CONFS))
def test_a_replay_is_the_same_each_time_and_never_reserves_less_than_it_allocates(
    events: list[tuple[int, int]], conf: str
) -> None:
    log = log_of(*events)
    options = parse_allocator_conf(conf)
    first = replay(log, options=options)
    assert first == replay(log, options=options)
    assert first.peak_reserved_bytes >= first.peak_allocated_bytes >= first.peak_requested_bytes
    assert first.out_of_memory is None
    # With exactly as much memory as it reserved nothing is short.
    enough = replay(log, options=options, capacity_bytes=first.peak_reserved_bytes)
    assert enough.out_of_memory is None
    assert replace(first, num_retries=0) == replace(enough, num_retries=0)
