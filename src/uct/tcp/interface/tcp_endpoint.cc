// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/interface/tcp_endpoint.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "uct/base/completion_group.h"
#include "uct/tcp/wire/format.h"

namespace uct::tcp {

namespace {

constexpr std::byte kZeros[wire::kAlignment]{};

wire::FrameHeader message_frame(TcpConnection& connection, uint8_t id, size_t length) {
    return {static_cast<uint32_t>(length), wire::FrameType::kMessage, id,
            connection.mark_for(length)};
}

std::byte* append(std::byte* to, const void* from, size_t length) {
    if (length > 0) std::memcpy(to, from, length);
    return to + length;
}

// Sends header, payload and zeros; small payload is copied behind its header first.
template <typename Header>
void send_small(Association& association, TcpConnection& connection, const TcpEndpoint* owner,
                const Header& header, const void* payload, size_t length, size_t padding) {
    const size_t total = sizeof(header) + length + padding;
    if (length < association.rail().config().sendv_thresh && total <= 4096) {
        std::byte* staging = association.buffers().staging.get();
        std::byte* end = append(staging, &header, sizeof(header));
        append(append(end, payload, length), kZeros, padding);
        const iovec piece{staging, total};
        connection.send({&piece, 1}, total, owner);
        return;
    }
    const iovec pieces[] = {{const_cast<Header*>(&header), sizeof(header)},
                            {const_cast<void*>(payload), length},
                            {const_cast<std::byte*>(kZeros), padding}};
    connection.send(pieces, total, owner);
}

size_t total_length(std::span<const Iov> iov) {
    size_t length = 0;
    for (const Iov& piece : iov) length += piece.length;
    return length;
}

// Pieces of scattered memory, one part after the other.
class Cutter {
  public:
    explicit Cutter(std::span<const Iov> iov) : iov_(iov) {}

    // The next `length` bytes. @return how many pieces
    uint8_t cut(size_t length, iovec* pieces) {
        uint8_t count = 0;
        while (length > 0) {
            const Iov& piece = iov_[index_];
            const size_t part = std::min(length, piece.length - offset_);
            if (part > 0) pieces[count++] = {static_cast<std::byte*>(piece.buffer) + offset_, part};
            length -= part;
            offset_ += part;
            if (offset_ == piece.length) {
                ++index_;
                offset_ = 0;
            }
        }
        return count;
    }

  private:
    std::span<const Iov> iov_;
    size_t index_ = 0, offset_ = 0;
};

}  // namespace

TcpEndpoint::TcpEndpoint(Association& association, Endpoint* reported_as)
    : association_(association), reported_as_(reported_as != nullptr ? *reported_as : *this) {
    association.add(*this);
}

TcpEndpoint::~TcpEndpoint() {
    association_.attention().pending.drop_all(*this);
    UserHook::unlink();
    association_.owner().look_at_associations();
    const bool is_cut_short = association_.has_chains_of(this);
    association_.forget(this, UCS_ERR_CANCELED);
    if (is_cut_short && !association_.has_users()) association_.abandon();
}

bool TcpEndpoint::on_association_failed(ucs_status_t status) {
    if (status_ != UCS_OK) return false;
    status_ = status;
    association_.attention().pending.drop_all(*this);
    association_.rail().report_failure(reported_as_, status);
    return true;
}

void TcpEndpoint::fail(ucs_status_t status) {
    // The handler may destroy the endpoint, which ends its operations.
    Association& association = association_;
    const uint32_t self = name();
    if (!on_association_failed(status)) return;
    if (const AssociationUser* user = association.find_user(self)) association.forget(user, status);
}

// --- active messages

ucs_status_t TcpEndpoint::check_room() const {
    if (status_ != UCS_OK) [[unlikely]]
        return status_;
    return association_.connection(0).has_room() ? UCS_OK : UCS_ERR_NO_RESOURCE;
}

ucs_status_t TcpEndpoint::check_open() const {
    TcpConnection& connection = association_.connection(0);
    if (connection.is_open()) [[likely]]
        return check_room();
    if (status_ == UCS_OK) connection.want_output();
    return status_ != UCS_OK ? status_ : UCS_ERR_NO_RESOURCE;
}

ucs_status_t TcpEndpoint::am_short(uint8_t id, uint64_t header, const void* payload,
                                   uint32_t length) {
    if (const ucs_status_t status = check_open(); status != UCS_OK) return status;
    TcpConnection& connection = association_.connection(0);
    const Head<uint64_t> head{message_frame(connection, id, sizeof(header) + length), header};
    send_small(association_, connection, this, head, payload, length, wire::padding(length));
    return UCS_OK;
}

ssize_t TcpEndpoint::am_bcopy(uint8_t id, PackCallback pack, void* arg) {
    if (const ucs_status_t status = check_open(); status != UCS_OK) return status;
    TcpConnection& connection = association_.connection(0);
    std::byte* staging = association_.buffers().staging.get();
    const size_t length = pack(staging + sizeof(wire::FrameHeader), arg);
    const wire::FrameHeader frame = message_frame(connection, id, length);
    append(staging, &frame, sizeof(frame));
    const size_t padding = wire::padding(length);
    append(staging + sizeof(frame) + length, kZeros, padding);
    const iovec piece{staging, sizeof(frame) + length + padding};
    connection.send({&piece, 1}, piece.iov_len, this);
    return static_cast<ssize_t>(length);
}

ucs_status_t TcpEndpoint::am_zcopy(uint8_t id, std::span<const std::byte> header,
                                   std::span<const Iov> iov, Completion* completion) {
    if (const ucs_status_t status = check_room(); status != UCS_OK) return status;
    TcpConnection& connection = association_.connection(0);
    ReferringOutput* operation = connection.queue().make();
    if (operation == nullptr) return UCS_ERR_NO_MEMORY;
    const size_t payload = total_length(iov);
    const wire::FrameHeader frame = message_frame(connection, id, header.size() + payload);
    append(append(operation->head.data(), &frame, sizeof(frame)), header.data(), header.size());
    operation->head_length = static_cast<uint16_t>(sizeof(frame) + header.size());
    operation->pieces_count = Cutter(iov).cut(payload, operation->pieces.data());
    operation->tail = static_cast<uint8_t>(wire::padding(header.size() + payload));
    operation->owner = this;
    operation->completion = completion;
    return connection.send(operation);
}

// --- remote memory

ucs_status_t TcpEndpoint::check_one_sided(TcpConnection& connection) {
    if (status_ != UCS_OK) [[unlikely]]
        return status_;
    return connection.has_room() ? association_.passes_fence(connection) : UCS_ERR_NO_RESOURCE;
}

ucs_status_t TcpEndpoint::check_pieces() {
    const bool has_room = association_.piece_connection().has_room();
    return has_room ? association_.pieces_pass_fence() : UCS_ERR_NO_RESOURCE;
}

ucs_status_t TcpEndpoint::fail_halfway(CompletionGroup& parts) {
    fail(UCS_ERR_NO_MEMORY);
    // That may have ended all of its pieces: then nobody is left to tell the user.
    return parts.finish() == UCS_OK ? UCS_ERR_NO_MEMORY : UCS_INPROGRESS;
}

ucs_status_t TcpEndpoint::put_short(const void* buffer, uint32_t length, uint64_t remote_address,
                                    RemoteKey key) {
    TcpConnection& connection = association_.connection(0);
    if (const ucs_status_t status = check_one_sided(connection); status != UCS_OK) return status;
    ++connection.one_sided;
    const auto head =
        head_of(wire::FrameType::kPut, wire::Put{remote_address, key, name(), 0}, length);
    send_small(association_, connection, this, head, buffer, length, wire::padding(length));
    return UCS_OK;
}

ssize_t TcpEndpoint::put_bcopy(PackCallback pack, void* arg, uint64_t remote_address,
                               RemoteKey key) {
    TcpConnection& connection = association_.connection(0);
    if (const ucs_status_t status = check_one_sided(connection); status != UCS_OK) return status;
    std::byte* staging = association_.buffers().staging.get();
    Head<wire::Put> head;
    const size_t length = pack(staging + sizeof(head), arg);
    head = head_of(wire::FrameType::kPut, wire::Put{remote_address, key, name(), 0}, length);
    append(staging, &head, sizeof(head));
    const size_t padding = wire::padding(length);
    append(staging + sizeof(head) + length, kZeros, padding);
    const iovec piece{staging, sizeof(head) + length + padding};
    ++connection.one_sided;
    connection.send({&piece, 1}, piece.iov_len, this);
    return static_cast<ssize_t>(length);
}

ucs_status_t TcpEndpoint::put_zcopy(std::span<const Iov> iov, uint64_t remote_address,
                                    RemoteKey key, Completion* completion) {
    if (status_ != UCS_OK) return status_;
    size_t left = total_length(iov);
    if (left == 0) return UCS_OK;
    const size_t stripe = association_.rail().config().stripe_size;
    if (const ucs_status_t status = check_pieces(); status != UCS_OK) return status;
    Cutter cutter(iov);
    CompletionGroup* parts = CompletionGroup::start(completion);
    while (left > 0) {
        const size_t length = std::min(left, stripe);
        TcpConnection& connection = association_.piece_connection();
        ReferringOutput* operation = connection.queue().make();
        if (operation == nullptr) {
            return fail_halfway(*parts);
        }
        const auto head =
            head_of(wire::FrameType::kPut, wire::Put{remote_address, key, name(), 0}, length);
        operation->set_head(head);
        operation->pieces_count = cutter.cut(length, operation->pieces.data());
        operation->tail = static_cast<uint8_t>(wire::padding(length));
        operation->owner = this;
        operation->completion = parts->add();
        connection.last_plain = ++connection.one_sided;
        if (connection.send(operation) == UCS_OK) parts->cancel();
        left -= length;
        remote_address += length;
    }
    return parts->finish();
}

ucs_status_t TcpEndpoint::start_get(RemoteOperation& operation, TcpConnection& connection,
                                    uint64_t remote_address, RemoteKey key) {
    const auto head =
        head_of(wire::FrameType::kGet,
                wire::Get{remote_address, key, static_cast<uint32_t>(operation.length), name(),
                          operation.name, 0},
                0);
    operation.covered[connection.index()] = connection.last_plain = ++connection.one_sided;
    const iovec piece{const_cast<Head<wire::Get>*>(&head), sizeof(head)};
    connection.send({&piece, 1}, sizeof(head), this);
    return UCS_INPROGRESS;
}

ucs_status_t TcpEndpoint::get_bcopy(UnpackCallback unpack, void* arg, size_t length,
                                    uint64_t remote_address, RemoteKey key,
                                    Completion* completion) {
    TcpConnection& connection = association_.connection(0);
    if (const ucs_status_t status = check_one_sided(connection); status != UCS_OK) return status;
    if (!association_.has_operation_room()) return UCS_ERR_NO_RESOURCE;
    std::unique_ptr<std::byte[]> copy(new (std::nothrow) std::byte[length]);
    if (copy == nullptr) return UCS_ERR_NO_MEMORY;
    RemoteOperation* operation =
        association_.start_operation(RemoteOperation::Kind::kGetCopy, this, completion);
    if (operation == nullptr) return UCS_ERR_NO_MEMORY;
    operation->copy = std::move(copy);
    operation->length = length;
    operation->unpack = unpack;
    operation->unpack_argument = arg;
    return start_get(*operation, connection, remote_address, key);
}

ucs_status_t TcpEndpoint::get_zcopy(std::span<const Iov> iov, uint64_t remote_address,
                                    RemoteKey key, Completion* completion) {
    if (status_ != UCS_OK) return status_;
    size_t left = total_length(iov);
    if (left == 0) return UCS_OK;
    const size_t stripe = association_.rail().config().stripe_size;
    if (const ucs_status_t status = check_pieces(); status != UCS_OK) return status;
    if (!association_.has_operation_room((left + stripe - 1) / stripe)) return UCS_ERR_NO_RESOURCE;
    Cutter cutter(iov);
    CompletionGroup* parts = CompletionGroup::start(completion);
    while (left > 0) {
        const size_t length = std::min(left, stripe);
        RemoteOperation* operation =
            association_.start_operation(RemoteOperation::Kind::kGet, this, parts->add());
        if (operation == nullptr) {
            parts->cancel();
            return fail_halfway(*parts);
        }
        operation->length = length;
        operation->pieces_count = cutter.cut(length, operation->pieces.data());
        start_get(*operation, association_.piece_connection(), remote_address, key);
        left -= length;
        remote_address += length;
    }
    return parts->finish();
}

ucs_status_t TcpEndpoint::atomic(AtomicOp op, unsigned size, uint64_t operand, uint64_t compare,
                                 void* result, uint64_t remote_address, RemoteKey key,
                                 Completion* completion) {
    TcpConnection& connection = association_.connection(0);
    if (const ucs_status_t status = check_one_sided(connection); status != UCS_OK) return status;
    const bool wants_reply = result != nullptr || completion != nullptr;
    wire::Atomic request{};
    request.address = remote_address;
    request.key = key;
    request.operand = operand;
    request.compare = compare;
    request.endpoint = name();
    request.operation = wire::kNoOperation;
    request.code = static_cast<uint8_t>(op);
    request.size = static_cast<uint8_t>(size);
    request.wants_reply = wants_reply;
    if (!wants_reply) {
        ++connection.one_sided;
    } else {
        if (!association_.has_operation_room()) return UCS_ERR_NO_RESOURCE;
        RemoteOperation* operation =
            association_.start_operation(RemoteOperation::Kind::kAtomic, this, completion);
        if (operation == nullptr) return UCS_ERR_NO_MEMORY;
        operation->result = result;
        operation->size = static_cast<uint8_t>(size);
        operation->covered[connection.index()] = ++connection.one_sided;
        request.operation = operation->name;
    }
    const auto head = head_of(wire::FrameType::kAtomic, request, 0);
    const iovec piece{const_cast<Head<wire::Atomic>*>(&head), sizeof(head)};
    connection.send({&piece, 1}, sizeof(head), this);
    return wants_reply ? UCS_INPROGRESS : UCS_OK;
}

// --- ordering, completion, waiting

ucs_status_t TcpEndpoint::fence() {
    if (status_ != UCS_OK) return status_;
    association_.fence();
    return UCS_OK;
}
bool TcpEndpoint::has_some_room() const {
    return status_ == UCS_OK &&
           (association_.connection(0).has_room() || association_.bulk_connection().has_room());
}

ucs_status_t TcpEndpoint::pending_add(Pending* pending) {
    if (status_ != UCS_OK) return status_;
    // Busy only if every kind of operation can go: a caller that waits for one kind must not spin.
    TcpConnection& bulk = association_.bulk_connection();
    const bool has_all = Group::empty() && association_.connection(0).is_open() &&
                         association_.connection(0).has_room() && bulk.has_room() &&
                         association_.has_operation_room(kMaxParts) &&
                         association_.pieces_pass_fence() == UCS_OK &&
                         association_.passes_fence(association_.connection(0)) == UCS_OK;
    if (has_all) return UCS_ERR_BUSY;
    if (!association_.connection(0).is_open()) association_.connection(0).want_output();
    association_.attention().pending.add(*this, *pending);
    return UCS_OK;
}
bool TcpEndpoint::is_connected(const RemoteAddress& remote) const {
    if (status_ != UCS_OK || !association_.target()) return false;
    const auto device = DeviceAddress::read(remote.device);
    const auto listener = ListenerAddress::read(remote.interface);
    return device && listener && *device == association_.target()->device &&
           *listener == association_.target()->listener;
}

}  // namespace uct::tcp
