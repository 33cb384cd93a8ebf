// SPDX-License-Identifier: BSD-3-Clause
#include "softhca/virtual/virtual_fabric.h"

#include <functional>
#include <new>
#include <utility>
#include <vector>

namespace softhca {
namespace {

// A million queues: a full mesh of RC queue pairs over 512 ranks needs a quarter of that.
SegmentLayout private_layout() {
    SegmentLayout layout;
    layout.index_bits = 20;
    layout.queues = 1u << 20;
    layout.regions = 1u << 20;
    layout.procs = 1;
    return layout;
}

// Address space is all that an arena costs, and some tools (valgrind, limits) leave little of it.
constexpr uint64_t kMinVirtualArena = uint64_t{1} << 30;

void create_segment(Segment& segment) {
    SegmentLayout layout = private_layout();
    while (!segment.create_private(layout)) {
        layout.arena_bytes /= 2;
        if (layout.arena_bytes < kMinVirtualArena) throw std::bad_alloc();
    }
}

}  // namespace

bool ContextCache::touch(uint64_t context) {
    const auto found = where_.find(context);
    if (found != where_.end()) {
        order_.splice(order_.begin(), order_, found->second);
        return true;
    }
    if (where_.size() >= capacity_ && !order_.empty()) {
        where_.erase(order_.back());
        order_.pop_back();
    }
    order_.push_front(context);
    where_[context] = order_.begin();
    return false;
}

VirtualFabricImpl::VirtualFabricImpl(const VirtualFabric::Options& options)
    : options_(options), nodes_(options.nodes) {
    create_segment(segment);
    if (!set_up_tables()) throw std::bad_alloc();
    // What is posted takes no memory of the program's, as with an adapter.
    constexpr size_t kEvents = 1024;
    std::vector<Event> room;
    room.reserve(kEvents);
    events_ = decltype(events_)(std::greater<>(), std::move(room));
    limits = options.limits;
    faults.set(options.faults);
    ports_.resize(1 + options.nodes * ports_per_node());
    for (size_t lid = 1; lid < ports_.size(); ++lid) {
        ports_[lid].node = unsigned(lid - 1) / ports_per_node();
        ports_[lid].requesters = ContextCache(size_t(options.model.requester_cache));
        ports_[lid].responders = ContextCache(size_t(options.model.responder_cache));
    }
}

VirtualFabricImpl::~VirtualFabricImpl() = default;

std::shared_ptr<VirtualFabricImpl>& VirtualFabricImpl::current() {
    static std::shared_ptr<VirtualFabricImpl> slot;
    return slot;
}

std::vector<Device> VirtualFabricImpl::devices() {
    std::vector<Device> list;
    for (unsigned i = 0; i < options_.devices_per_node; ++i) {
        const unsigned first = current_node_ * ports_per_node() + i * options_.ports_per_device;
        list.push_back(
            make_device(current_node_, i, uint16_t(1 + first), options_.ports_per_device));
    }
    return list;
}

uint16_t VirtualFabricImpl::lid_of_guid(uint64_t guid) const {
    const uint64_t lid = guid - kGuidBase;
    return lid > 0 && lid < ports_.size() ? uint16_t(lid) : 0;
}
AccessResult VirtualFabricImpl::move(Owner, iovec* mine, int num_mine, iovec* theirs,
                                     int num_theirs, bool write) {
    if (write) {
        copy_iov(theirs, num_theirs, mine, num_mine);
    } else {
        copy_iov(mine, num_mine, theirs, num_theirs);
    }
    return AccessResult::kOk;
}

AccessResult VirtualFabricImpl::atomic(Owner, uint64_t addr, bool compare, uint64_t compare_add,
                                       uint64_t swap, uint64_t* old) {
    auto* word = reinterpret_cast<uint64_t*>(addr);
    *old = *word;
    if (!compare) {
        *word += compare_add;
    } else if (*word == compare_add) {
        *word = swap;
    }
    return AccessResult::kOk;
}

void VirtualFabricImpl::after_poll(Cq& cq, int polled) {
    const uint16_t lid = cq.record->lid;
    if (polled > 0) {
        charge(lid, polled * options_.model.cqe_poll);
        return;
    }
    charge(lid, options_.model.empty_poll);
    if (auto_advance_) step();
}

void VirtualFabricImpl::charge_recv_post(Context& context, uint32_t posted) {
    if (posted == 0) return;
    charge(context.device.lid, posted * options_.model.wqe_post);
}

void VirtualFabricImpl::cq_activity(CqRecord& record, bool event) {
    ++ports_[record.lid].counters.cqes;
    if (event) {
        record.notifications = 0;
        Cq* cq = cqs.get(segment.index_of(record.number));
        if (cq != nullptr) deliver_cq_event(*cq);
    }
    if (activity_) activity_(ports_[record.lid].node);
}

void VirtualFabricImpl::raised_events(Owner, uint16_t lid) {
    collect_events();
    if (activity_) activity_(ports_[lid].node);
}

void VirtualFabricImpl::set_port(uint16_t lid, bool up) {
    Port& port = ports_[lid];
    if (port.up == up) return;
    port.up = up;
    for (Context* context : contexts) {
        const uint8_t number = context->device.port_of(lid);
        if (number == 0) continue;
        deliver_async(*context, up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR, nullptr, number);
    }
    if (activity_) activity_(port.node);
}

void VirtualFabricImpl::fail_devices(unsigned node) {
    nodes_[node].alive = false;
    for (Context* context : contexts) {
        if (context->device.node == node) {
            deliver_async(*context, IBV_EVENT_DEVICE_FATAL, nullptr);
        }
    }
    if (activity_) activity_(node);
}

VirtualFabric::VirtualFabric() : VirtualFabric(Options()) {}
VirtualFabric::VirtualFabric(const Options& options)
    : impl_(std::make_shared<VirtualFabricImpl>(options)) {
    make_current();
}
VirtualFabric::~VirtualFabric() {
    if (VirtualFabricImpl::current() == impl_) VirtualFabricImpl::current() = nullptr;
}
void VirtualFabric::make_current() {
    VirtualFabricImpl::current() = impl_;
}
void VirtualFabric::set_current_node(unsigned node) {
    impl_->current_node_ = node;
}
unsigned VirtualFabric::num_nodes() const {
    return impl_->options_.nodes;
}
uint64_t VirtualFabric::now() const {
    return impl_->now_ns();
}
uint64_t VirtualFabric::next_event_time() const {
    return impl_->next_event_ns();
}
void VirtualFabric::advance_to(uint64_t time) {
    impl_->advance_to(time);
}
bool VirtualFabric::step() {
    return impl_->step();
}
void VirtualFabric::run_until_idle() {
    while (impl_->step()) {
    }
}
void VirtualFabric::set_auto_advance(bool on) {
    impl_->auto_advance_ = on;
}
void VirtualFabric::on_activity(std::function<void(unsigned)> callback) {
    impl_->activity_ = std::move(callback);
}

uint64_t VirtualFabric::take_cpu_time(unsigned node) {
    uint64_t& cpu = impl_->nodes_[node].cpu;
    const uint64_t ns = cpu / VirtualFabricImpl::kPs;
    cpu %= VirtualFabricImpl::kPs;
    return ns;
}

void VirtualFabric::charge_cpu(unsigned node, uint64_t ns) {
    impl_->nodes_[node].cpu += ns * VirtualFabricImpl::kPs;
}

void VirtualFabric::kill_node(unsigned node) {
    impl_->nodes_[node].alive = false;
}
void VirtualFabric::fail_devices(unsigned node) {
    impl_->fail_devices(node);
}
void VirtualFabric::set_link(unsigned node, bool up) {
    for (unsigned port = 0; port < impl_->ports_per_node(); ++port) set_port(node, port, up);
}
void VirtualFabric::set_port(unsigned node, unsigned port, bool up) {
    impl_->set_port(uint16_t(1 + node * impl_->ports_per_node() + port), up);
}

void VirtualFabric::set_faults(const FaultPlan& plan) {
    impl_->faults.set(plan);
}

void VirtualFabric::kill_qp(uint32_t qp_num) {
    QpRecord* record = impl_->segment.find_qp(qp_num);
    if (record != nullptr) fail_qp(*impl_, *record, IBV_EVENT_QP_FATAL);
}

namespace {

void add(Counters& sum, const Counters& c) {
    sum.doorbells += c.doorbells;
    sum.wqes += c.wqes;
    sum.cqes += c.cqes;
    sum.messages += c.messages;
    sum.bytes += c.bytes;
    sum.rnr += c.rnr;
    sum.dci_switches += c.dci_switches;
    sum.requester_misses += c.requester_misses;
    sum.responder_misses += c.responder_misses;
    sum.retransmissions += c.retransmissions;
}

}  // namespace

Counters VirtualFabric::counters(unsigned node) const {
    Counters sum;
    for (size_t lid = 1; lid < impl_->ports_.size(); ++lid) {
        if (impl_->ports_[lid].node == node) add(sum, impl_->ports_[lid].counters);
    }
    return sum;
}

Counters VirtualFabric::total() const {
    Counters sum;
    for (unsigned node = 0; node < num_nodes(); ++node) add(sum, counters(node));
    return sum;
}

std::vector<RegisteredMemory> VirtualFabric::registered() const {
    std::vector<RegisteredMemory> found;
    const uint32_t count = impl_->mr_count;
    for (uint32_t index = 0; found.size() < count; ++index) {
        const MrRecord* const record = impl_->segment.mr_at(index);
        if (record == nullptr) break;
        if (record->key.load() == 0) continue;
        found.push_back(
            {reinterpret_cast<const void*>(record->addr), record->length, record->access});
    }
    return found;
}

uint64_t VirtualFabric::trace_hash() const {
    return impl_->hash_;
}

}  // namespace softhca
