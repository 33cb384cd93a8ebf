// SPDX-License-Identifier: BSD-3-Clause

// Bulk transfers. A chain goes over one connection, handed to the kernel with
// as few calls as it takes: puts with a flush behind them, whose answer says
// that all bytes are placed; gets, which are answered in their order, so that
// the last one tells of all. Pieces that follow each other at both ends are one
// operation: a frame for each would be a system call for each at the receiver.

#include <algorithm>

#include "uct/tcp/interface/tcp_endpoint.h"
#include "uct/tcp/wire/format.h"

namespace uct::tcp {

namespace {

// Leading pieces that are one operation: `count` of them, `length` bytes.
struct Stretch {
    explicit Stretch(std::span<const ChainPiece> pieces) : count(1), length(pieces.front().length) {
        const ChainPiece& first = pieces.front();
        for (const ChainPiece& next : pieces.subspan(1)) {
            if (next.local != static_cast<std::byte*>(first.local) + length ||
                next.remote != first.remote + length || next.key != first.key ||
                next.memory != first.memory || length + next.length > wire::kMaxPayload) {
                break;
            }
            length += next.length;
            ++count;
        }
    }
    size_t count;
    size_t length;
};

}  // namespace

ssize_t TcpEndpoint::put_chain(std::span<const ChainPiece> pieces, Completion* completion) {
    if (status_ != UCS_OK) return status_;
    TcpConnection& connection = association_.bulk_connection();
    OutputQueue& queue = connection.queue();
    size_t room = connection.room();
    if (pieces.empty() || room == 0 || !association_.has_operation_room()) return 0;
    RemoteOperation* operation = association_.start_put_chain(this, completion, connection.index());
    if (operation == nullptr) return UCS_ERR_NO_MEMORY;
    const bool was_empty = queue.empty();
    size_t taken = 0;
    // The flush's record is made first: what was taken must be followed by it.
    ReferringOutput* flush = queue.make();
    for (; taken < pieces.size() && room > 0; --room) {
        ReferringOutput* output = flush != nullptr ? queue.make() : nullptr;
        if (output == nullptr) break;
        const ChainPiece& first = pieces[taken];
        const Stretch stretch(pieces.subspan(taken));
        output->set_head(head_of(wire::FrameType::kPut,
                                 wire::Put{first.remote, first.key, name(), 0}, stretch.length));
        output->pieces[0] = {first.local, stretch.length};
        output->pieces_count = 1;
        output->tail = static_cast<uint8_t>(wire::padding(stretch.length));
        output->owner = this;
        queue.append(output);
        taken += stretch.count;
        ++connection.one_sided;
    }
    if (taken == 0) {
        if (flush != nullptr) association_.buffers().output.destroy(flush);
        association_.cancel_operation(*operation);
        return UCS_ERR_NO_MEMORY;
    }
    association_.end_chain(*operation);
    flush->set_head(head_of(wire::FrameType::kFlush, wire::Reply{operation->name, 0}, 0));
    queue.append(flush);
    connection.send_queued(was_empty);
    return static_cast<ssize_t>(taken);
}

ssize_t TcpEndpoint::get_chain(std::span<const ChainPiece> pieces, Completion* completion) {
    if (status_ != UCS_OK) return status_;
    TcpConnection& connection = association_.bulk_connection();
    using Request = Head<wire::Get>;
    std::array<Request, 64> requests;
    const size_t room = connection.has_room() ? association_.operation_room() : 0;
    const size_t most = std::min(room, requests.size());
    size_t taken = 0, count = 0;
    RemoteOperation* last = nullptr;
    while (taken < pieces.size() && count < most) {
        const ChainPiece& first = pieces[taken];
        const Stretch stretch(pieces.subspan(taken));
        RemoteOperation* operation =
            association_.start_operation(RemoteOperation::Kind::kGet, this, nullptr);
        if (operation == nullptr) break;
        operation->chained = true;
        operation->connection = static_cast<uint8_t>(connection.index());
        operation->length = stretch.length;
        operation->pieces[0] = {first.local, stretch.length};
        operation->pieces_count = 1;
        requests[count++] =
            head_of(wire::FrameType::kGet,
                    wire::Get{first.remote, first.key, static_cast<uint32_t>(stretch.length),
                              name(), operation->name, 0},
                    0);
        taken += stretch.count;
        last = operation;
    }
    if (taken == 0) return pieces.empty() || most == 0 ? 0 : ssize_t{UCS_ERR_NO_MEMORY};
    last->completion = completion;
    for (const Request& request : std::span(requests).first(count))
        association_.find_operation(request.body.operation)->last = last->name;
    connection.one_sided += count;
    association_.end_chain(*last);
    // Chains have no order towards anything: they are asked for even if the endpoint goes.
    const iovec all{requests.data(), count * sizeof(Request)};
    connection.send({&all, 1}, all.iov_len);
    return static_cast<ssize_t>(taken);
}

}  // namespace uct::tcp
