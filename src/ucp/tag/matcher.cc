// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/tag/matcher.h"

#include <new>

namespace ucp {

template <typename Element, TagHook Element::*Hook>
TagTable<Element, Hook>::TagTable() : buckets_(new Bucket[size_t{1} << kInitialBits]) {}

/** Elements of one tag keep their order: they leave one bucket in order and share the next one. */
template <typename Element, TagHook Element::*Hook>
void TagTable<Element, Hook>::grow() {
    size_t old_count = bucket_count();
    std::unique_ptr<Bucket[]> old(new (std::nothrow) Bucket[old_count * 2]);
    if (!old) return;  // longer lists are slower, not wrong
    old.swap(buckets_);
    --shift_;
    for (size_t i = 0; i < old_count; ++i) {
        while (!old[i].empty()) {
            Element& element = old[i].front();
            old[i].pop_front();
            bucket(element.tag).push_back(element);
        }
    }
}

template class TagTable<ExpectedReceive, &ExpectedReceive::hook>;
template class TagTable<UnexpectedMessage, &UnexpectedMessage::bucket_hook>;

ExpectedReceive* Matcher::take_expected(Tag tag) {
    ExpectedReceive* exact = nullptr;
    auto& bucket = exact_.bucket(tag);
    for (ExpectedReceive& receive : bucket) {
        if (receive.tag != tag) continue;
        exact = &receive;
        break;
    }
    for (ExpectedReceive& receive : wildcards_) {
        if (exact && receive.sequence > exact->sequence) break;
        if (!tag_matches(tag, receive.tag, receive.mask)) continue;
        wildcards_.erase(wildcards_.iterator_to(receive));
        return &receive;
    }
    if (exact) exact_.remove(bucket, *exact);
    return exact;
}

void Matcher::post(ExpectedReceive& receive) {
    receive.sequence = posted_++;
    if (receive.mask == kFullTagMask) {
        exact_.insert(receive);
    } else {
        wildcards_.push_back(receive);
    }
}

void Matcher::withdraw(ExpectedReceive& receive) {
    if (receive.mask == kFullTagMask) {
        exact_.remove(receive);
    } else {
        wildcards_.erase(wildcards_.iterator_to(receive));
    }
}

UnexpectedMessage* Matcher::search_unexpected(Tag tag, Tag mask) {
    if (mask == kFullTagMask) {
        for (UnexpectedMessage& message : by_tag_.bucket(tag)) {
            if (message.tag == tag) return &message;
        }
        return nullptr;
    }
    for (UnexpectedMessage& message : arrived_) {
        if (tag_matches(message.tag, tag, mask)) return &message;
    }
    return nullptr;
}

void Matcher::keep(UnexpectedMessage& message) {
    by_tag_.insert(message);
    arrived_.push_back(message);
}

void Matcher::remove(UnexpectedMessage& message) {
    by_tag_.remove(message);
    arrived_.erase(arrived_.iterator_to(message));
}

}  // namespace ucp
