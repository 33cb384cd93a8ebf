// SPDX-License-Identifier: BSD-3-Clause
#include "uct/sm/sm_interface.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "ucs/sys/host.h"
#include "uct/sm/sm_endpoint.h"

namespace uct::sm {

namespace {

constexpr size_t kMaxIov = 16;
constexpr size_t kMaxHeader = 64;
constexpr size_t kWholeMemory = SIZE_MAX / 2;
constexpr uint8_t kAllAtomics = 0x3f;
constexpr ucs::Duration kWatchInterval = std::chrono::milliseconds(100);
// How soon a sleeping side looks again whether there is room: no signal says so.
constexpr ucs::Duration kRoomInterval = std::chrono::microseconds(50);
// How soon it looks again for messages of senders that were stopped.
constexpr ucs::Duration kLateInterval = std::chrono::milliseconds(10);
constexpr unsigned kWatched = 4;  // peers looked at each time
// Of puts that are done when their call returns: no turn is worth much less (CopyQueue).
constexpr size_t kMaxShortPut = 64 * 1024;

ucs_status_t move(CopyDirection direction, const Iov& piece, uint64_t remote, RemoteKey key) {
    const RemoteRegion& region = RemoteRegion::from(key);
    return direction == CopyDirection::kPut ? region.write({&piece, 1}, remote)
                                            : region.read({&piece, 1}, remote);
}

JointCopy offer(const LocalCopy& copy, const Iov& piece) {
    return RemoteRegion::from(copy.key()).offer(copy.direction(), piece, copy.remote());
}

}  // namespace

HostAddress HostAddress::own() {
    return {ucs::host_id(), sm::pid_namespace(), static_cast<uint32_t>(geteuid())};
}

void HostAddress::write(std::span<std::byte> bytes) const {
    std::memcpy(bytes.data(), &host, sizeof(host));
    std::memcpy(bytes.data() + 8, &pid_namespace, sizeof(pid_namespace));
    std::memcpy(bytes.data() + 16, &user, sizeof(user));
}

bool HostAddress::is(std::span<const std::byte> bytes) const {
    std::byte own[kLength];
    write(own);
    return bytes.size() == kLength && std::memcmp(own, bytes.data(), kLength) == 0;
}

SmInterface::SmInterface(const Config& config, const InterfaceParams& params,
                         const TransportDeclaration& transport)
    : config_(config),
      params_(params),
      copies_(params.clock, move, params.copy_threads, config.joint_copies ? offer : nullptr),
      scratch_(new std::byte[config.segment_size]) {
    const size_t segment = config.segment_size;
    attributes_ = attributes_of(transport);
    if (config.joint_copies && params.copy_threads == nullptr)
        attributes_.capabilities |= kJointCopies;
    attributes_.device = "memory";
    attributes_.atomic32_ops = attributes_.atomic64_ops = kAllAtomics;
    attributes_.am = {segment - kMaxHeader, segment, segment - kMaxHeader, kMaxIov, kMaxHeader};
    constexpr size_t kPieces = LocalCopy::kMaxPieces;
    attributes_.put = {kMaxShortPut, segment, kWholeMemory, kPieces, 0};
    attributes_.get = {0, segment, kWholeMemory, kPieces, 0};
    attributes_.device_address_length = HostAddress::kLength;
    attributes_.bandwidth = 12e9;
    next_watch_ = ucs::deadline(params_.clock.now(), kWatchInterval);
}

SmInterface::~SmInterface() {
    for (const int descriptor : wake_pipe_) {
        if (descriptor >= 0) close(descriptor);
    }
}

ucs_status_t SmInterface::get_device_address(std::span<std::byte> address) const {
    if (address.size() < HostAddress::kLength) return UCS_ERR_BUFFER_TOO_SMALL;
    host_.write(address);
    return UCS_OK;
}

// --- sleeping

ucs_status_t SmInterface::open_pipe() {
    if (pipe2(wake_pipe_, O_CLOEXEC | O_NONBLOCK) != 0) return UCS_ERR_NO_RESOURCE;
    copies_.set_wake_descriptor(wake_pipe_[1]);
    return UCS_OK;
}

ucs_status_t SmInterface::arm() {
    char bytes[256];
    while (read(wake_pipe_[0], bytes, sizeof(bytes)) == sizeof(bytes)) {
    }
    // What waits for room in a peer's queue keeps nobody awake: a thread that serves the peer as
    // well, after this side has gone to sleep, would never come to make room.
    if (!failures_.empty() || !copies_.sleep()) return UCS_ERR_BUSY;
    is_asleep_ = true;
    interest_.mark();
    return fall_asleep();
}

ucs::Time SmInterface::next_deadline() const {
    if (!pending_.empty()) return ucs::deadline(params_.clock.now(), kRoomInterval);
    return awaits_late() ? ucs::deadline(params_.clock.now(), kLateInterval) : ucs::kNever;
}

void SmInterface::rouse() const {
    const char byte = 0;
    // A full pipe wakes as well.
    if (write(wake_pipe_[1], &byte, 1) < 0) return;
}

// --- peers

void SmInterface::add(SmEndpoint& endpoint) {
    endpoints_.push_back(endpoint);
}

void SmInterface::remove(SmEndpoint& endpoint) {
    endpoints_.erase(endpoints_.iterator_to(endpoint));
    std::erase_if(failures_, [&](const auto& failure) { return failure.first == &endpoint; });
    std::erase(refused_, &endpoint);
}

ucs_status_t SmInterface::copy(CopyGroup& group, const LocalCopy& copy, Completion* completion) {
    const ucs_status_t status = copies_.start(group, copy, completion);
    if (copies_.wants_progress()) interest_.mark();
    if (copies_.needs_progress()) wake_own_progress();
    return status;
}

unsigned SmInterface::serve() {
    if (is_asleep_) {
        is_asleep_ = false;
        wake_up();
    }
    while (!failures_.empty()) {
        const auto [endpoint, status] = failures_.back();
        failures_.pop_back();
        params_.error_handler(params_.error_arg, endpoint, status);
    }
    unsigned count = copies_.progress();
    if (serve_waiting()) ++count;
    if (awaits_late()) count += take_late();
    // What completions and those served have found out meanwhile is the next call's.
    interest_.set_mark(is_asleep_ || !failures_.empty() || !pending_.empty() ||
                       copies_.wants_progress() || awaits_late());
    return count;
}

bool SmInterface::serve_waiting() {
    if (pending_.empty()) return false;
    const bool has_more = pending_.dispatch(
        [this](PendingQueue::Group& group) {
            auto& endpoint = static_cast<SmEndpoint&>(group);
            if (endpoint.may_post()) return true;
            refused_.push_back(&endpoint);
            return false;
        },
        [](PendingQueue::Group&) { return false; }, [this] { return copies_.has_room(); });
    // No completion puts those without room in turn again.
    for (SmEndpoint* endpoint : refused_) pending_.schedule(*endpoint);
    refused_.clear();
    // That the last one was served is an event: the program looks at its request before it sleeps.
    // While others wait it does not sleep for long.
    return has_more || pending_.empty();
}

void SmInterface::watch() {
    watch_countdown_ = kWatchPolls;
    const ucs::Time now = params_.clock.now();
    if (now < next_watch_) return;
    next_watch_ = ucs::deadline(now, kWatchInterval);
    look_after_queues();
    if (awaits_late()) interest_.mark();
    const auto count = std::min<size_t>(kWatched, endpoints_.size());
    for (size_t i = 0; i < count && !endpoints_.empty(); ++i) {
        SmEndpoint& endpoint = endpoints_.front();
        endpoints_.splice(endpoints_.end(), endpoints_, endpoints_.begin());
        endpoint.look_at_peer();
    }
}

}  // namespace uct::sm
