// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/ud/ud_connection.h"

namespace uct::ib::ud {

UdConnection::Match UdConnection::match(const Header& header) {
    const bool knows_us = header.destination == name_;
    if (!knows_us && header.destination != 0) return Match::kStale;
    if (!header.hello) {
        if (!is_attached() || header.source != remote_name_) return Match::kStale;
        is_confirmed_ = true;
        return Match::kTaken;
    }
    const uint64_t start = header.hello->start;
    Match result = Match::kTaken;
    if (!is_attached()) {
        remote_start_ = start;
        remote_name_ = header.source;
    } else if (start != remote_start_ || header.source != remote_name_) {
        if (start <= remote_start_) return Match::kStale;
        // Numbers that the former connection has acknowledged are missing in the new one.
        if (sender_.has_arrived()) return knows_us ? Match::kStale : Match::kReplaced;
        remote_start_ = start;
        remote_name_ = header.source;
        is_confirmed_ = false;
        result = Match::kAnew;
    }
    if (knows_us) is_confirmed_ = true;
    return result;
}

bool UdConnection::acknowledged(const Header& header, ucs::Time now, SentList* done) {
    sender_.heard(now);
    // Who does not know this connection has nothing of it.
    if (header.destination != name_) return true;
    return sender_.acknowledged(header.acknowledged,
                                {header.selective.data(), header.selective_words}, now, done);
}

void UdConnection::address(Header* header, const Hello& self) const {
    header->destination = remote_name_;
    header->source = name_;
    if (is_confirmed_) return;
    header->hello = self;
    header->hello->start = start_;
}

}  // namespace uct::ib::ud
