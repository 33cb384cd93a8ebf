// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/stats/collector.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <new>
#include <span>
#include <string_view>
#include <utility>

#include "ucs/log/log.h"
#include "ucs/sys/process.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace ucp::stats {
namespace {

// Endpoints of the table that are looked at beside the links, in a fill.
constexpr size_t kMaxVisited = 2 * kMaxEndpoints;
// Room for the best links of each role.
constexpr size_t kMaxCandidates = 5 * kMaxEndpoints;

void copy_text(std::string_view text, std::span<char> to) {
    const size_t length = std::min(text.size(), to.size() - 1);
    std::memcpy(to.data(), text.data(), length);
    to[length] = '\0';
}

int64_t nanoseconds(ucs::Time time) {
    return time.time_since_epoch().count();
}

}  // namespace

Collector::Collector(const InterfaceSet& interfaces, EndpointTable& endpoints, LaneDriver& lanes,
                     Context& context)
    : interfaces_(interfaces), endpoints_(endpoints), lanes_(lanes), context_(context) {}

void Collector::open(uint64_t uuid, const std::string& worker_name, ucs::Time now) {
    const ucs_status_t status = PageWriter::create(&writer_);
    if (status == UCS_OK) worker_.reset(new (std::nothrow) WorkerRecord{});
    if (worker_ == nullptr) {
        ucs::log_debug("no statistics of worker {}: {}", worker_name, ucs_status_string(status));
        writer_.reset();
        return;
    }
    copy_text(worker_name, worker_->name);
    worker_->id = uuid;
    worker_->context = ucs::mix64(reinterpret_cast<uintptr_t>(&context_));
    worker_->made = nanoseconds(now);
    fill(now);
}

void Collector::fill(ucs::Time now) {
    next_ = ucs::deadline(now, kInterval);
    // The page of a parent is the parent's.
    if (context_.is_inherited()) {
        next_ = ucs::kNever;
        return;
    }
    WorkerRecord& worker = *worker_;
    worker.filled = nanoseconds(now);
    ++worker.fills;
    const lanes::Negotiator& negotiator = lanes_.negotiator();
    worker.endpoints = endpoints_.size();
    worker.links = negotiator.links().size();
    worker.cap = negotiator.config().cap + negotiator.config().host_cap;
    worker.dedicated = negotiator.held();
    worker.dedicated_peak = lanes_.peak_held();
    const lanes::Counters& counters = negotiator.counters();
    worker.promotions = counters.promotions;
    worker.demotions = counters.demotions;
    worker.failures = counters.failures;
    worker.requests = counters.requests;
    worker.denials_sent = counters.denials_sent;
    worker.denials_received = counters.denials_received;
    worker.withdrawals = counters.withdrawals;
    worker.violations = counters.violations;
    worker.replays = lanes_.replays();
    worker.held_messages = lanes_.held_messages();
    worker.windows = lanes_.windows();
    worker.samples = lanes_.tracker() != nullptr ? lanes_.tracker()->samples() : 0;
    add_transports();
    add_memory();
    add_endpoints();
    writer_->publish(worker);
}

void Collector::add_transports() {
    uint32_t count = 0;
    for (const WorkerInterface& interface : interfaces_.list()) {
        if (count == kMaxTransports) break;
        TransportRecord& transport = worker_->transports[count++];
        const uct::InterfaceAttributes& attributes = interface.transport->attributes();
        copy_text(attributes.transport, transport.name);
        copy_text(attributes.device, transport.device);
        transport.endpoints_made = interface.endpoints_made;
        transport.retransmissions = interface.transport->retransmissions();
    }
    worker_->transport_count = count;
}

void Collector::add_memory() {
    DomainSet& domains = context_.domains();
    const DomainLock lock(domains);
    worker_->regions = domains.regions().size();
    worker_->region_bytes = domains.regions().bytes();
    if (const RegistrationCache* cache = domains.registrations()) {
        worker_->cached_regions = cache->regions();
        worker_->cached_bytes = cache->bytes();
        worker_->registrations_made = cache->statistics().made;
        worker_->registrations_found = cache->statistics().found;
    }
}

void Collector::add_endpoints() {
    worker_->endpoint_count = 0;
    std::array<const lanes::Link*, kMaxCandidates> candidates;
    size_t count = 0;
    lanes_.negotiator().for_best(kMaxEndpoints, [&](const lanes::Link& link) {
        if (count < candidates.size()) candidates[count++] = &link;
    });
    const std::span best(candidates.data(), count);
    std::ranges::sort(best, std::greater(), [](const lanes::Link* link) { return link->rank(); });
    for (const lanes::Link* link : best) {
        if (worker_->endpoint_count == kMaxEndpoints) return;
        if (Endpoint* endpoint = lanes_.endpoint_of(link->peer)) add(*endpoint, link);
    }
    endpoints_.for_first(kMaxVisited, [this](Endpoint& endpoint) {
        if (worker_->endpoint_count < kMaxEndpoints && lanes_.link_of(endpoint) == nullptr)
            add(endpoint, nullptr);
    });
}

void Collector::add(Endpoint& endpoint, const lanes::Link* link) {
    EndpointRecord& entry = worker_->entries[worker_->endpoint_count++];
    entry = {};
    const auto index_of = [](unsigned transport) {
        return transport < kMaxTransports ? static_cast<uint8_t>(transport) : kNoTransport;
    };
    entry.peer = endpoint.remote_uuid();
    entry.flags = (endpoint.is_failed() ? uint32_t{EndpointRecord::kFailed} : 0) |
                  (endpoint.is_users() ? uint32_t{EndpointRecord::kUsers} : 0);
    entry.waiting = static_cast<uint32_t>(endpoint.waiting_requests(kMaxWaiting));
    entry.lane = entry.other = kNoTransport;
    if (!endpoint.is_waiting()) entry.lane = index_of(endpoint.scalable_index());
    if (const LaneState* state = endpoint.lane_state()) {
        entry.other = index_of(state->interface_index);
        const bool is_in_use = state->direction != nullptr &&
                               state->direction->tx.lane() == lanes::LaneKind::kDedicated;
        if (is_in_use) std::swap(entry.lane, entry.other);
    }
    if (const ucs::UsageTracker* tracker = lanes_.tracker()) {
        const ucs::UsageTracker::Usage usage = tracker->usage_of(endpoint.tracker_hook());
        if (usage.id != 0) {
            entry.flags |= EndpointRecord::kMeasured;
            entry.messages_per_second = usage.messages;
            entry.bytes_per_second = usage.bytes;
        }
    }
    if (link == nullptr) return;
    entry.flags |= EndpointRecord::kHasLink;
    entry.local_score = link->local;
    entry.advertised_score = link->advertised;
    entry.remote_score = link->remote;
    entry.state_since = static_cast<int64_t>(link->since);
    entry.promotions = link->promotions;
    entry.demotions = link->demotions;
    entry.denials = link->denials;
    entry.state = static_cast<uint8_t>(link->state);
    entry.reason = static_cast<uint8_t>(link->reason);
}

ucs_status_t PageWriter::create(std::unique_ptr<PageWriter>* writer) {
    const int descriptor = memfd_create(kFileName, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (descriptor < 0) {
        return errno == EMFILE || errno == ENFILE ? UCS_ERR_NO_RESOURCE : UCS_ERR_UNSUPPORTED;
    }
    void* base = MAP_FAILED;
    struct stat info {};
    if (fchmod(descriptor, S_IRUSR | S_IWUSR) == 0 && ftruncate(descriptor, sizeof(Page)) == 0 &&
        fstat(descriptor, &info) == 0) {
        base = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    }
    auto* page = static_cast<Page*>(base);
    if (base != MAP_FAILED)
        writer->reset(new (std::nothrow) PageWriter(descriptor, info.st_ino, page));
    if (base == MAP_FAILED || *writer == nullptr) {
        if (base != MAP_FAILED) munmap(base, sizeof(Page));
        close(descriptor);
        return UCS_ERR_NO_MEMORY;
    }
    // Older kernels refuse the last one: then others of the user may write, and readers are shown
    // nonsense.
    if (fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE) != 0)
        fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
    const ucs::Process process = ucs::Process::self();
    page->head.version = kVersion;
    page->head.size = sizeof(Page);
    page->head.start_time = process.start_time;
    page->head.pid = process.pid;
    page->head.magic = kMagic;
    return UCS_OK;
}

PageWriter::~PageWriter() {
    munmap(page_, sizeof(Page));
    // A program may have closed what it does not know, and opened something else in its place.
    struct stat info {};
    if (fstat(descriptor_, &info) == 0 && info.st_ino == file_) close(descriptor_);
}

void PageWriter::publish(const WorkerRecord& worker) {
    const std::atomic_ref<uint64_t> sequence(page_->head.sequence);
    const uint64_t before = sequence.load(std::memory_order_relaxed);
    sequence.store(before + 1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    std::memcpy(&page_->worker, &worker, sizeof(worker));
    sequence.store(before + 2, std::memory_order_release);
}

}  // namespace ucp::stats
