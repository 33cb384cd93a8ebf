# SPDX-License-Identifier: BSD-3-Clause
"""Mutants of what keeps peers apart and data whole."""

# name: source, what is replaced (it must be there once) by what, programs and tests of which one must fail
MUTANTS = {
    "anybody speaks for anybody": (
        "src/ucp/runtime/interface_set.cc",
        {"    return is_his;\n": "    return true;\n"},
        ("ucp_test",), "*Sender.*"),
    "an allocation is held by another's operations": (
        "src/ucs/memory/held_allocations.h",
        {"users_in(value) != 0 && number_in(value) == allocation;": "users_in(value) != 0;"},
        ("ucs_test",), "HeldAllocations.*"),
    "what lay there is what lies there": (
        "src/ucs/memory/gate.cc",
        {"last.holds(address) && last.is_held() ?": "last.holds(address) ?"},
        ("ucs_test",), "MemoryGateTest.DeviceMemory*"),
    "a failed device is never asked": (
        "src/ucs/memory/detector.h",
        {"++polls_ % kPollsPerTest != 0 ?": "++polls_ != 0 ?"},
        ("ucs_test",), "AsyncCopy.*"),
    "virtual memory is held at all of its addresses": (
        "src/uct/cuda/copy_engine.h",
        {"return number != 0 && !is_virtual;": "return number != 0;"},
        ("test/cuda/memory_test",), "CudaAllocations.OfVirtualMemoryHaveSeveralPlaces"),
    "a buffer in two allocations of virtual memory is one's": (
        "src/uct/cuda/memory.cc",
        {"const bool is_in_one = found.holds(address, length);": "const bool is_in_one = true;"},
        ("test/cuda/memory_test",), "CudaAllocations.OfVirtualMemoryAreToldApart"),
    "memory of a pool goes with the context that it was copied in": (
        "src/uct/cuda/copy_engine.cc",
        {"found.context != nullptr ? last.context->works() : last.context->is_alive()": "last.context->works()"},
        ("test/cuda/memory_test",), "CudaAllocations.OutliveContexts"),
    "allocations stay held": (
        "src/uct/cuda/staging.cc",
        {"    if (is_held_) engine_->held().release(memory.allocation);\n": ""},
        ("test/cuda/memory_test",), "StagingTest.HoldsTheAllocation*"),
    "the adapter takes pinned memory for a GPU's": (
        "src/softhca/adapter/gpu_memory.cc",
        {"    if (found.type == kMemoryOfHost) return Place::kHost;\n": ""},
        ("test/cuda/adapter_test",), "*PinnedMemoryWhere*"),
    "a lane is anybody's": (
        "src/ucp/runtime/interface_set.h",
        {"return !peer.is_lane && find_out(peer, worker);": "return peer.is_lane || find_out(peer, worker);"},
        ("ucp_test",), "*Sender.*sm_ring"),
    "checksums are not compared": (
        "src/uct/checked/checked_messages.cc",
        {"word.length) == word.crc;\n": "word.length) == word.crc || true;\n"},
        ("ucp_test",), "*Checksums.AChangedByteIsNoticed*"),
    "what follows a wrong message is heard": (
        "src/ucp/runtime/interface_set.cc",
        # Either of the two is enough where the transport knows whose the connection is.
        {"        from->is_over = true;\n        const uint64_t known": "        const uint64_t known",
         "    self.cut_off_.insert(worker);\n": ""},
        ("ucp_test",), "*OrderedChecksums*"),
    "flushes of failed endpoints are done": (
        "src/ucp/endpoint/endpoint.cc",
        {"flush.request->complete(status_)": "flush.request->complete(UCS_OK)"},
        ("ucp_test",), "*Checksums.AChangedByteIsNoticed*put*"),
    "an adapter's atomics beside the processor's": (
        "src/ucp/runtime/interface_set.cc",
        {"    const bool has_none = any(uct::kAtomicCpu | uct::kAtomicDevice, 0);\n":
         "    const bool has_none = false;\n"},
        ("test/system/soft_fabric_test",), "*AtomicsAreTheProcessors*"),
    "a device goes on in memory that was unmapped": (
        "src/ucp/mem/domain_set.cc",
        {"    for (RegionUser* const user : users_) user->let_go(region);\n": ""},
        ("ucp_proto_test",), "*PeerCopies*Unmapped*"),
    "a device copies whatever the rights are": (
        "src/ucp/proto/rma/peer_copies.cc",
        {"is_put ? UCP_MEM_MAP_PROT_REMOTE_WRITE : UCP_MEM_MAP_PROT_REMOTE_READ": "0"},
        ("ucp_proto_test",), "*PeerCopies*Rights*"),
    "a put that a peer's device does not copy waits for fences behind it": (
        "src/ucp/proto/rma/emulation_origin.cc",
        {"    request.flags |= Request::kAwaited;\n": ""},
        ("ucp_proto_test",), "*PeerCopies*Fences*"),
    "a version that is not known is asked for copies": (
        "src/ucp/mem/remote_memory.cc",
        {"copies.front() == static_cast<std::byte>(kCopyVersion)": "true"},
        ("ucp_proto_test",), "*PeerCopies*LaterVersion*"),
    # --- operations in place on memory of a peer
    "in place, beyond the rights": (
        "src/uct/api/mapped_region.h",
        {" && uct::allows(rights, wanted) &&": " &&"},
        ("ucp_proto_test",), "InPlace.NothingBeyond*"),
    "in place, past the end of the key": (
        "src/uct/api/mapped_region.h",
        {"offset <= length && size <= length - offset &&": "offset <= length &&"},
        ("ucp_proto_test",), "InPlace.NothingOutside*"),
    "in place, where the owner has withdrawn it": (
        "src/uct/api/mapped_region.h",
        {"granted->load(std::memory_order_acquire) == number": "granted != nullptr"},
        ("ucp_proto_test",), "InPlace.NothingThatItsOwner*"),
    "in place, before what a fence holds": (
        "src/ucp/endpoint/send_queue.cc",
        {"        if (fence_.since() != 0) return false;\n": ""},
        ("ucp_proto_test",), "InPlace.*"),
    "in place, before what the peer answers": (
        "src/ucp/endpoint/send_queue.cc",
        {"        if (has_remote_operations()) return false;\n": ""},
        ("ucp_proto_test",), "InPlace.AFence*"),
    "in place, past what waits or on what has failed": (
        "src/ucp/endpoint/endpoint.cc",
        {"acts_in_place_ = !is_failed() && !has_backlog_ && !is_waiting()": "acts_in_place_ = !is_waiting()"},
        ("ucp_proto_test",), "InPlace.*"),
    "in place, without the lock": (
        "src/ucp/capi/rma.cc",
        {"!endpoint.gate().has_threads() &&": ""},
        ("ucp_proto_test",), "InPlace.Threads*"),
    "in place, short, without the lock": (
        "src/ucp/proto/rma/in_place.h",
        {"kWatched = Gate::kThreads | Gate::kDevices;": "kWatched = Gate::kDevices;"},
        ("ucp_proto_test",), "InPlace.Threads*"),
    "in place, counted": (
        "src/ucp/proto/rma/in_place.h",
        {"kNotCounted = 0;": "kNotCounted = Gate::kTracker;"},
        ("ucp_proto_test",), "InPlace.AnArmed*"),
    "in place, short, before what a fence holds": (
        "src/ucp/proto/rma/in_place.h",
        {"|| !endpoint.is_unfenced() ||": "||"},
        ("ucp_proto_test",), "InPlace.Nothing*"),
    "in place, a sampling window that no flush ends": (
        "src/ucp/lanes/driver/lane_driver.cc",
        {"now < tracker_->next_event()": "now < ucs::kNever"},
        ("ucp_proto_test",), "*InPlace*"),
    "in place, a sampling window that any flush ends": (
        "src/ucp/lanes/driver/lane_driver.cc",
        {"    if (now < tracker_->next_event()) return;\n    tracker_->disarm": "    tracker_->disarm"},
        ("ucp_proto_test",), "*InPlace*"),
    "accounts that were forgotten are found again": (
        "src/ucp/runtime/interface_set.h",
        {"return peers_.generation() + peer_memory_.generation();": "return peers_.generation();"},
        ("ucp_test",), "*GreedySender.IsCountedAlso*"),
    "a settled worker does not hear of what waits": (
        "src/ucp/endpoint/send_queue.cc",
        {"        host_->is_settled = false;\n        has_backlog_ = true;\n": "        has_backlog_ = true;\n"},
        ("ucp_proto_test",), "InPlace.AFlush*"),
    "registrations of a device's memory that is another's now": (
        "src/ucp/mem/registration_cache.cc",
        {"end <= region.end && region.allocation == memory.allocation": "end <= region.end"},
        ("ucp_proto_test",), "RegistrationCaching.MemoryOfADeviceIsFound*"),
    "registrations past the end of a device's allocation": (
        "src/ucp/mem/registration_cache.cc",
        {"        last = std::min(last, base + memory.length);\n": ""},
        ("ucp_proto_test",), "RegistrationCaching.NothingBeside*"),
    "registrations of a device's memory that was freed": (
        "src/ucp/mem/registration_cache.cc",
        {"        forget(region);\n        ++statistics_.invalidated;\n    }\n}\n\nvoid RegistrationCache::forget":
         "        ++statistics_.invalidated;\n    }\n}\n\nvoid RegistrationCache::forget"},
        ("ucp_proto_test",), "RegistrationCaching.*WasFreed*"),
    "a settled worker does not hear of what the peer answers": (
        "src/ucp/endpoint/endpoint.h",
        {"        host_->is_settled = false;\n        return remote": "        return remote"},
        ("ucp_proto_test",), "Loopback.AFlush*Answer*"),
}
