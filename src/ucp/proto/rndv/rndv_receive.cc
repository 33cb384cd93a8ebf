// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "ucp/mem/memory.h"
#include "ucp/mem/remote_memory.h"
#include "ucp/proto/match/message_times.h"
#include "ucp/proto/match/receive.h"
#include "ucp/proto/rndv/rndv.h"
#include "ucp/trace/probe.h"
#include "ucp/trace/trace.h"
#include "ucs/log/log.h"

namespace ucp {

namespace {

bool needs_handle(Rendezvous& rndv, const Lane& lane) {
    return rndv.domains[lane.domains.local].memory->attributes().needs_handle;
}

// The part of the internal request that gets the data.
struct RndvGet {
    Rendezvous* rndv;
    Request* receive;      // ends when this request ends, and not before
    RemoteMemory* remote;  // null: the lane that it began on is the only one that reads, by
    LaneKey key;           // this one
    uint64_t address;      // of byte 0 of the message in the sender's memory
    size_t offset;
};

Memory* memory_of(const TagReceive& receive) {
    return receive.memory != nullptr ? receive.memory : receive.user_memory;
}

void tell_sender(Rendezvous& rndv, uint64_t sender, uint64_t request, ucs_status_t status) {
    const RndvDone done{request, rndv.endpoints.local_uuid(), static_cast<int8_t>(status)};
    rndv.endpoints.answer(sender, AmId::kRndvAts, std::as_bytes(std::span(&done, 1)));
}

// Tells senders that their data has been copied: those of one sender that end together with one
// status by one message.
class Acknowledgements {
  public:
    explicit Acknowledgements(Rendezvous& rndv) : rndv_(rndv) {}
    Acknowledgements(const Acknowledgements&) = delete;

    void add(uint64_t sender, uint64_t request, ucs_status_t status) {
        if (count_ == kMostDone ||
            (count_ > 0 && (sender != sender_ || message_.done.status != status)))
            send();
        if (count_ == 0) {
            sender_ = sender;
            message_.done = {request, rndv_.endpoints.local_uuid(), static_cast<int8_t>(status)};
        } else {
            message_.further[count_ - 1] = request;
        }
        ++count_;
    }
    void send() {
        if (count_ == 0) return;
        const size_t further = count_ - 1;
        const auto bytes = std::as_bytes(std::span(&message_, 1));
        count_ = 0;
        if (further == 0 || rndv_.endpoints.find(sender_) != nullptr) {
            return rndv_.endpoints.answer(
                sender_, AmId::kRndvAts,
                bytes.first(sizeof(message_.done) + further * sizeof(message_.further[0])));
        }
        // What is said later, when there is an endpoint again, is short.
        const RndvDone done = message_.done;
        const auto status = static_cast<ucs_status_t>(done.status);
        tell_sender(rndv_, sender_, done.request, status);
        for (size_t which = 0; which < further; ++which)
            tell_sender(rndv_, sender_, message_.further[which], status);
    }

  private:
#pragma pack(push, 1)
    struct Message {
        RndvDone done;
        uint64_t further[kMostDone - 1];
    };
#pragma pack(pop)

    Rendezvous& rndv_;
    uint64_t sender_ = 0;
    size_t count_ = 0;  // of requests; what follows has values for these
    Message message_;
};

// Ask the sender for the bytes from `offset` on. With `offer` it may put them; the registration is
// our own then, so that it ends with the receive and no late put finds the buffer.
// @param exported  the buffer, for the sender's devices; or null
void ask_sender(Rendezvous& rndv, Endpoint& endpoint, Request& request, size_t offset, bool offer,
                const ucs::MemoryExport* exported = nullptr) {
    TagReceive& receive = request.part<TagReceive>();
    receive.arrived = offset;
    request.endpoint = &endpoint;
    RndvRtr rtr{};
    rtr.request = receive.sender_request;
    rtr.from = endpoint.local_uuid();
    rtr.offset = offset;
    rtr.end = receive.wanted;
    size_t key_length = 0;
    std::vector<std::byte> message;
    try {
        if (offer) bulk::Engine::register_for_peer(endpoint, *receive.memory, receive.wanted);
        key_length = offer ? packed_key_size(*receive.memory) : 0;
        rtr.export_length = exported == nullptr ? 0 : sizeof(*exported);
        message.resize(sizeof(rtr) + key_length + rtr.export_length);
        rtr.receiver = endpoint.requests().name(request);
    } catch (const std::bad_alloc&) {
        tell_sender(rndv, receive.sender, receive.sender_request, UCS_ERR_NO_MEMORY);
        return request.complete(UCS_ERR_NO_MEMORY);
    }
    if (offer) {
        rtr.address = reinterpret_cast<uintptr_t>(receive.buffer.data()) + offset;
        rtr.key_length = static_cast<uint32_t>(key_length);
        pack_key(*receive.memory, std::span(message).subspan(sizeof(rtr)));
    }
    if (exported != nullptr)
        std::memcpy(message.data() + sizeof(rtr) + key_length, exported, sizeof(*exported));
    std::memcpy(message.data(), &rtr, sizeof(rtr));
    endpoint.send_control(AmId::kRndvRtr, message);
}

ucs_status_t post_get(Request& request, const Lane& lane) {
    RndvGet& get = request.part<RndvGet>();
    TagReceive& receive = get.receive->part<TagReceive>();
    const uct::RemoteKey key =
        get.remote != nullptr ? get.remote->find(lane.domains) : get.key.find(lane.domains);
    const bool by_handle = needs_handle(*get.rndv, lane);
    uct::MemoryHandle* handle = nullptr;
    if (by_handle && memory_of(receive) != nullptr)
        handle = memory_of(receive)->handle(lane.domains.local);
    // The lane cannot read (any more): the sender is asked to send the rest.
    if (key == uct::kInvalidRemoteKey || (by_handle && handle == nullptr) ||
        (lane.attributes.capabilities & uct::kGetZcopy) == 0)
        return UCS_OK;
    if (get.offset == 0 && by_handle &&
        get.rndv->bulk.try_start(
            request, bulk::Direction::kGet,
            {receive.buffer.data(), get.address, receive.wanted, memory_of(receive), get.remote})) {
        get.offset = receive.wanted;
        receive.timing.is_elsewhere = true;
        return UCS_OK;
    }
    const size_t length = std::min(lane.attributes.get.max_zcopy, receive.wanted - get.offset);
    const uct::Iov piece{static_cast<std::byte*>(receive.buffer.data()) + get.offset, length,
                         handle};
    const ucs_status_t status = [&] {
        const ReceiverWork work(receive.timing);
        return request.call([&](uct::Completion* c) {
            return lane.endpoint.get_zcopy({&piece, 1}, get.address + get.offset, key, c);
        });
    }();
    if (status != UCS_OK && status != UCS_INPROGRESS) return status;
    // The lane copies it by itself, or in later calls of progress: not time of this call.
    if (status == UCS_INPROGRESS) receive.timing.is_elsewhere = true;
    get.offset += length;
    return get.offset == receive.wanted ? UCS_OK : UCS_INPROGRESS;
}

void get_finished(Request& request) {
    RndvGet get = request.part<RndvGet>();
    SWIFTLANE_PROBE(rendezvous_get_end, &request, request.status);
    if (Trace* trace = Trace::active()) {
        trace->end("rendezvous", "rendezvous get", 0, &request,
                   {{"status", ucs_status_string(request.status)}});
    }
    delete get.remote;
    get.key.close(get.rndv->domains);
    Request& receive = *get.receive;
    TagReceive& part = receive.part<TagReceive>();
    if (request.status == UCS_OK && get.offset < part.wanted) {
        // The get's own endpoint may have gone meanwhile.
        Endpoint* sender = get.rndv->endpoints.find(part.sender);
        if (sender != nullptr) return ask_sender(*get.rndv, *sender, receive, get.offset, false);
        request.status = UCS_ERR_CONNECTION_RESET;
    }
    tell_sender(*get.rndv, part.sender, part.sender_request, request.status);
    receive.complete(request.status);
}

// Is there memory that the lane's device may write the receive's bytes to?
// @param rights  of the sender: to write what is offered to it, and then the registration is our
//                own; none for a get
bool prepare_memory(Rendezvous& rndv, TagReceive& receive, const Lane& lane,
                    uct::PeerRights rights) {
    // Left by a get that could not be started.
    if (receive.memory != nullptr) Memory::destroy(std::exchange(receive.memory, nullptr));
    const auto address = reinterpret_cast<uintptr_t>(receive.buffer.data());
    const bool covered =
        receive.user_memory != nullptr && receive.user_memory->covers(address, receive.wanted);
    if (!covered) receive.user_memory = nullptr;
    if (rights != uct::PeerRights::kNone || !covered) {
        if (Memory::create_on_demand(rndv.domains, receive.buffer.data(), receive.wanted, rights,
                                     &receive.memory, receive.buffer.memory()) != UCS_OK)
            return false;
    }
    return memory_of(receive)->handle(lane.domains.local) != nullptr;
}

// Where the lane is all that can read, as within a host.
bool open_key(Rendezvous& rndv, const Announcement& announcement, const Lane& lane, LaneKey* key) {
    try {
        return key->open(rndv.domains, announcement.key, lane.domains) == UCS_OK &&
               key->key != uct::kInvalidRemoteKey;
    } catch (const std::bad_alloc&) {
        return false;
    }
}

bool start_get(Rendezvous& rndv, Endpoint& endpoint, Request& request,
               const Announcement& announcement) {
    TagReceive& receive = request.part<TagReceive>();
    const Lane lane = endpoint.one_sided_lane();
    if (!announcement.has_key || (lane.attributes.capabilities & uct::kGetZcopy) == 0) return false;
    std::unique_ptr<RemoteMemory> remote;
    LaneKey key;
    if (needs_handle(rndv, lane)) {
        remote.reset(new (std::nothrow) RemoteMemory);
        if (!remote) return false;
        try {
            std::array<DomainPair, RemoteMemory::kMaxKeys> pairs;
            if (remote->open(rndv.domains, announcement.key, endpoint.domain_pairs(pairs)) !=
                    UCS_OK ||
                remote->find(lane.domains) == uct::kInvalidRemoteKey ||
                !prepare_memory(rndv, receive, lane, uct::PeerRights::kNone))
                return false;
        } catch (const std::bad_alloc&) {
            return false;
        }
    } else if (!open_key(rndv, announcement, lane, &key)) {
        return false;
    }
    Request* get = rndv.requests.allocate();
    if (get == nullptr) {
        key.close(rndv.domains);
        return false;
    }
    get->emplace<RndvGet>(&rndv, &request, remote.release(), key, announcement.rts.address,
                          size_t{0});
    get->endpoint = &endpoint;
    get->post = post_get;
    get->callback_kind = Request::CallbackKind::kInternal;
    get->on_finish.internal = get_finished;
    get->order = Request::Order::kOneSided;
    SWIFTLANE_PROBE(rendezvous_get_begin, get, receive.wanted);
    if (Trace* trace = Trace::active()) {
        trace->begin("rendezvous", "rendezvous get", endpoint.local_uuid(), get,
                     {{"bytes", receive.wanted}});
    }
    endpoint.start(*get);
    return true;
}

// The receive that a message names, if it waits for data of the peer that the message is from.
Request* find_receive(Rendezvous& rndv, uint64_t id, uint64_t from) {
    Request* request = rndv.requests.find(id);
    if (request == nullptr || !is_receive(*request)) return nullptr;
    return request->part<TagReceive>().sender == from ? request : nullptr;
}

ucs_status_t on_data(void* arg, void* data, size_t length, uct::ReceiveDescriptor*) {
    Rendezvous& rndv = *static_cast<Rendezvous*>(arg);
    RndvData header;
    std::span<const std::byte> payload;
    Request* request = nullptr;
    if (read_header(data, length, &header, &payload))
        request = find_receive(rndv, header.request, header.from);
    if (request == nullptr) {
        ucs::log_warn("rendezvous data of {} bytes for an unknown receive dropped", length);
        return UCS_OK;
    }
    TagReceive& receive = request->part<TagReceive>();
    // Bytes before the first message of data were put into the memory that was offered.
    const bool follows_puts = receive.arrived == 0 && receive.memory != nullptr;
    const bool in_place =
        header.offset == receive.arrived || (follows_puts && header.offset < receive.wanted);
    if (!in_place || payload.size() > receive.wanted - header.offset) {
        ucs::log_warn("rendezvous data out of place dropped");
        return UCS_OK;
    }
    store(*request, header.offset, payload.data(), payload.size());
    receive.arrived = header.offset + payload.size();
    if (receive.arrived == receive.wanted) {
        rndv.requests.answered(*request, UCS_OK);
    }
    return UCS_OK;
}

ucs_status_t on_atp(void* arg, void* data, size_t length, uct::ReceiveDescriptor*) {
    Rendezvous& rndv = *static_cast<Rendezvous*>(arg);
    RndvDone done;
    if (!parse_done({static_cast<std::byte*>(data), length}, &done)) {
        ucs::log_warn("malformed end of a rendezvous of {} bytes dropped", length);
        return UCS_OK;
    }
    Request* const part = rndv.requests.find(done.request);
    if (part != nullptr && Relay::is_part(*part) && part->endpoint->remote_uuid() == done.from) {
        rndv.relay.stored(*part, static_cast<ucs_status_t>(done.status));
        return UCS_OK;
    }
    Request* request = find_receive(rndv, done.request, done.from);
    if (request == nullptr) {
        ucs::log_warn("end of an unknown rendezvous dropped");
        return UCS_OK;
    }
    rndv.requests.answered(*request, static_cast<ucs_status_t>(done.status));
    return UCS_OK;
}

// Where a receive's bytes lie together, on a device or not; null: they do not.
void* whole_buffer(const TagReceive& receive) {
    if (receive.buffer.is_contiguous()) return receive.buffer.data();
    const std::span<std::byte> bytes = receive.buffer.device_bytes();
    return bytes.empty() ? nullptr : bytes.data();
}

// May the lane read and write the receive's buffer by itself?
bool is_reached(Rendezvous& rndv, const TagReceive& receive, const Lane& lane) {
    const std::optional<ucs_memory_type_t> type = receive.buffer.whole_in();
    return type == UCS_MEMORY_TYPE_HOST ||
           (type && (rndv.domains[lane.domains.local].memory->attributes().device_types &
                     UCS_BIT(*type)) != 0);
}

// Can the sender's memory be mapped here, so that devices here read it?
bool is_openable(const Announcement& announcement) {
    return announcement.is_described_before ||
           (announcement.has_export && announcement.exported.has_handle != 0);
}

// May the sender's devices write to a receive's buffer, which is device memory?
bool describe_target(Rendezvous& rndv, Endpoint& endpoint, Request& request,
                     ucs::MemoryExport* exported) {
    const TagReceive& receive = request.part<TagReceive>();
    const std::span<std::byte> bytes = receive.buffer.device_bytes();
    if (bytes.empty() || rndv.scheme == RndvScheme::kAm) return false;
    const LaneUse& use = endpoint.configuration().use(LaneRole::kMessages, UCS_MEMORY_TYPE_CUDA);
    return use.service == Service::kByDevices &&
           rndv.direct.describe(endpoint, bytes.first(receive.wanted), receive.buffer.found(),
                                exported) &&
           exported->has_handle != 0;
}

// Have our device copy out of the sender's memory.
bool begin_copy(Rendezvous& rndv, Request& request, const Announcement& announcement) {
    const TagReceive& receive = request.part<TagReceive>();
    void* const buffer = whole_buffer(receive);
    if (rndv.scheme == RndvScheme::kAm || buffer == nullptr) return false;
    const uint64_t sender = announcement.rts.sender;
    if (announcement.has_export) {
        rndv.direct.remember(sender, announcement.exported);
        return rndv.direct.copy(request, {&announcement.exported, 0, buffer, receive.wanted},
                                receive.buffer.found(), false);
    }
    const auto& [allocation, offset] = announcement.described;
    const ucs::MemoryExport* const described = rndv.direct.recall(sender, allocation);
    if (described == nullptr || offset > described->size ||
        announcement.rts.length > described->size - offset)
        return false;
    return rndv.direct.copy(request, {described, offset, buffer, receive.wanted},
                            receive.buffer.found(), false);
}

ucs_status_t on_memory_news(void* arg, void* data, size_t length, uct::ReceiveDescriptor*) {
    MemoryNews news;
    if (!read_whole(data, length, &news) || news.event > MemoryNews::kInUse) {
        ucs::log_warn("malformed news of device memory of {} bytes dropped", length);
        return UCS_OK;
    }
    static_cast<Rendezvous*>(arg)->direct.hear(news);
    return UCS_OK;
}

}  // namespace

unsigned Rendezvous::run_deferred() {
    if (!direct.has_copies()) return 0;
    return direct.run_deferred([this](std::span<const DirectPath::Ended> all) {
        Acknowledgements acknowledgements(*this);
        for (const auto& [request, status] : all) {
            if (request->wire_id != 0 || !is_receive(*request)) continue;
            const TagReceive& receive = request->part<TagReceive>();
            acknowledgements.add(receive.sender, receive.sender_request, status);
        }
        acknowledgements.send();
        for (const auto& [request, status] : all) {
            if (request->wire_id != 0) {
                requests.answered(*request, status);
            } else {
                request->complete(status);
            }
        }
    });
}

bool Rendezvous::is_copied_here(std::span<const std::byte> bytes) const {
    Announcement announcement;
    if (!parse_announcement(bytes, &announcement)) return false;
    Endpoint* const endpoint = endpoints.find(announcement.rts.sender);
    return endpoint != nullptr &&
           (endpoint->one_sided_lane().attributes.capabilities & uct::kCopies) != 0;
}

void Rendezvous::receive(Request& request, std::span<const std::byte> bytes) {
    Announcement announcement;
    // The bytes were checked when they came.
    if (!parse_announcement(bytes, &announcement)) return request.complete(UCS_ERR_IO_ERROR);
    receive(request, announcement);
}

void Rendezvous::receive(Request& request, const Announcement& announcement) {
    const RndvRts& rts = announcement.rts;
    TagReceive& receive = request.part<TagReceive>();
    receive.sender = rts.sender;
    receive.sender_request = rts.request;
    receive.wanted = std::min<size_t>(rts.length, receive.buffer.length());
    request.received = receive.wanted;
    Endpoint* endpoint = endpoints.find(rts.sender);
    if (endpoint == nullptr) {
        tell_sender(*this, rts.sender, rts.request, UCS_ERR_CONNECTION_RESET);
        return requests.finish_later(request, UCS_ERR_CONNECTION_RESET);
    }
    const bool truncated = receive.wanted < rts.length;
    if (receive.wanted == 0 ||
        (truncated && receive.buffer.type_class() == DatatypeClass::kGeneric)) {
        tell_sender(*this, rts.sender, rts.request, UCS_OK);
        return request.complete(UCS_OK);
    }
    if ((announcement.has_export || announcement.is_described_before) &&
        begin_copy(*this, request, announcement))
        return;
    const Lane lane = endpoint->one_sided_lane();
    const bool may_offer = is_reached(*this, receive, lane);
    if (may_offer && (scheme == RndvScheme::kAuto || scheme == RndvScheme::kGet) &&
        start_get(*this, *endpoint, request, announcement))
        return;
    bool offer = may_offer && scheme != RndvScheme::kAm && announcement.has_key &&
                 (lane.attributes.capabilities & uct::kPutZcopy) != 0;
    if (offer) offer = prepare_memory(*this, receive, lane, uct::PeerRights::kWrite);
    ucs::MemoryExport exported;
    const bool is_described =
        !is_openable(announcement) && describe_target(*this, *endpoint, request, &exported);
    if (!is_described && announcement.has_export && scheme != RndvScheme::kAm && !offer &&
        relay.receive(request, announcement.exported))
        return;
    ask_sender(*this, *endpoint, request, 0, offer, is_described ? &exported : nullptr);
}

void Rendezvous::relayed(Request& request, size_t arrived, ucs_status_t status) {
    const TagReceive& receive = request.part<TagReceive>();
    if (status == UCS_OK && arrived < receive.wanted) {
        Endpoint* const sender = endpoints.find(receive.sender);
        if (sender != nullptr) return ask_sender(*this, *sender, request, arrived, false);
        status = UCS_ERR_CONNECTION_RESET;
    }
    tell_sender(*this, receive.sender, receive.sender_request, status);
    request.complete(status);
}

void Rendezvous::refuse(const RndvRts& rts, ucs_status_t status) {
    tell_sender(*this, rts.sender, rts.request, status);
}

void Rendezvous::add_handlers(InterfaceSet& interfaces) {
    add_send_handlers(interfaces);
    interfaces.set_handler(AmId::kRndvData, on_data, this);
    interfaces.set_handler(AmId::kRndvAtp, on_atp, this);
    interfaces.set_handler(AmId::kMemoryNews, on_memory_news, this);
}

}  // namespace ucp
