// SPDX-License-Identifier: BSD-3-Clause
// Which connections an interface accepts, once their greeting is whole and known to be of this job.
#include <sys/socket.h>

#include <utility>

#include "ucs/log/log.h"
#include "uct/tcp/tcp_interface.h"

namespace uct::tcp {

wire::Answer TcpInterface::answer_to(const wire::Hello& hello) {
    if (hello.max_frame != max_message()) {
        ucs::log_error(
            "{}: a peer sends messages of another size: UCX_TCP_RX_SEG_SIZE must be the "
            "same everywhere",
            device_.name);
        return wire::Answer::kMismatch;
    }
    const auto cut = cut_off_.find(hello.sender);
    if (cut != cut_off_.end() && hello.link <= cut->second) return wire::Answer::kCutOff;
    const auto known = by_peer_.find(hello.sender);
    if (hello.sender == id() || known == by_peer_.end()) return wire::Answer::kWelcome;
    Link& link = *known->second;
    Channel& channel = link.channel(hello.channel);
    if (link.peer_number() != 0 && link.peer_number() != hello.link) {
        // The peer began anew. What it still sent before counts; what waits for it is lost.
        if (Channel* first = link.existing(0)) first->drain();
        channel.drain();
        if (!link.is_failed()) link.fail(UCS_ERR_CONNECTION_RESET);
        return wire::Answer::kWelcome;
    }
    if (Session* session = link.session(); hello.channel == 0 && session != nullptr) {
        if (session->may_begin_again()) return wire::Answer::kWelcome;
        if (link.is_failed()) return wire::Answer::kCutOff;
    }
    if (hello.channel > 0 && link.peer_number() != 0) {
        if (hello.bulk_epoch < link.bulk_epoch()) return wire::Answer::kStale;
        if (hello.bulk_epoch > link.bulk_epoch()) link.end_bulk(hello.bulk_epoch);
        if (link.is_failed()) return wire::Answer::kCutOff;
    }
    // Open: the peer made this attempt before it knew of the connection that stands.
    return channel.is_open() || !channel.must_yield_to(hello.sender) ? wire::Answer::kYield
                                                                     : wire::Answer::kWelcome;
}

void TcpInterface::resume(const wire::Hello& hello, Descriptor socket, bool is_new) {
    const auto known = by_peer_.find(hello.sender);
    Link* link = known == by_peer_.end() ? nullptr : known->second;
    Session* session = link == nullptr ? nullptr : link->session();
    wire::Welcome refusal{};
    refusal.magic = wire::kMagic;
    refusal.version = wire::kVersion;
    refusal.answer = wire::Answer::kUnknown;
    if (session != nullptr && link->number() == hello.peer_link &&
        link->peer_number() == hello.link && hello.channel == 0) {
        refusal.answer = session->judge(hello);
    }
    if (refusal.answer == wire::Answer::kWelcome) {
        session->accept(hello, std::move(socket), is_new);
    } else {
        [[maybe_unused]] const ssize_t sent =
            ::send(socket.get(), &refusal, sizeof(refusal), MSG_NOSIGNAL);
    }
    look_at_links();
}

void TcpInterface::welcome(const wire::Hello& hello, Descriptor socket, bool is_new) {
    if ((hello.flags & wire::kResumes) != 0) {
        resume(hello, std::move(socket), is_new);
        return;
    }
    if (is_leaving_) return;
    wire::Welcome welcome{};
    welcome.magic = wire::kMagic;
    welcome.version = wire::kVersion;
    welcome.channel = hello.channel;
    welcome.max_frame = static_cast<uint32_t>(max_message());
    welcome.answer = answer_to(hello);
    Link* link = nullptr;
    if (welcome.answer == wire::Answer::kWelcome) {
        // What this worker sends to itself arrives on a link of its own.
        link = hello.sender == id() ? &make_link(hello.sender, false) : &link_to(hello.sender);
        if (link->peer_number() == 0) link->set_bulk_epoch(hello.bulk_epoch);
        link->set_peer_number(hello.link);
        welcome.link = link->number();
        welcome.flags = link->is_mapped() ? session_flags() : uint8_t{0};
    }
    const bool sent = ::send(socket.get(), &welcome, sizeof(welcome), MSG_NOSIGNAL) ==
                      static_cast<ssize_t>(sizeof(welcome));
    Session* session = link != nullptr && hello.channel == 0 ? link->session() : nullptr;
    if (sent && session != nullptr) {
        session->begin_again(std::move(socket), is_new);
    } else if (sent && link != nullptr) {
        const bool resumes =
            hello.channel == 0 && link->is_mapped() && keeps_sessions_with(hello.flags);
        link->channel(hello.channel).adopt(std::move(socket), is_new, resumes);
    }
    look_at_links();
}

}  // namespace uct::tcp
