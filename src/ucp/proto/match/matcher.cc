// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/proto/match/matcher.h"

#include <new>

namespace ucp {

template <typename Bucket>
TagTable<Bucket>::TagTable() : buckets_(new Bucket[size_t{1} << kInitialBits]) {}

// Elements of one tag keep their order: they leave one bucket in order and share the next one.
template <typename Bucket>
void TagTable<Bucket>::grow() {
    const size_t old_count = bucket_count_;
    std::unique_ptr<Bucket[]> old(new (std::nothrow) Bucket[old_count * 2]);
    if (!old) return;  // longer lists are slower, not wrong
    old.swap(buckets_);
    --shift_;
    bucket_count_ *= 2;
    for (size_t i = 0; i < old_count; ++i) {
        while (!old[i].empty()) {
            Element& element = old[i].front();
            old[i].pop_front();
            bucket(element.tag).push_back(element);
        }
    }
}

template class TagTable<ExpectedReceive::List>;
template class TagTable<UnexpectedMessage::List<&UnexpectedMessage::bucket_hook>>;

namespace {

// The element before the first for which `condition` holds; the last one if there is none.
template <typename Condition>
ExpectedReceive::List::iterator before_first(ExpectedReceive::List& list, Condition condition) {
    auto before = list.before_begin();
    for (auto next = list.begin(); next != list.end() && !condition(*next); ++next) ++before;
    return before;
}

ExpectedReceive* element_behind(ExpectedReceive::List& list, ExpectedReceive::List::iterator it) {
    return ++it == list.end() ? nullptr : &*it;
}

}  // namespace

ExpectedReceive* Matcher::take_earliest(Tag tag) {
    ExpectedReceive::List& bucket = exact_.bucket(tag);
    const auto before_exact = before_first(bucket, [&](const ExpectedReceive& receive) {
        return tag_matches(tag, receive.tag, exact_mask());
    });
    ExpectedReceive* const exact = element_behind(bucket, before_exact);
    const auto before_wildcard = before_first(wildcards_, [&](const ExpectedReceive& receive) {
        const bool is_later = exact != nullptr && receive.sequence > exact->sequence;
        return is_later || tag_matches(tag, receive.tag, receive.mask);
    });
    ExpectedReceive* const wildcard = element_behind(wildcards_, before_wildcard);
    ExpectedReceive* taken = exact;
    if (wildcard != nullptr && (exact == nullptr || wildcard->sequence < exact->sequence)) {
        taken = wildcard;
        wildcards_.erase_after(before_wildcard);
    } else if (exact != nullptr) {
        bucket.erase_after(before_exact);
        exact_.removed();
    }
    if (taken != nullptr) taken->sequence = 0;
    return taken;
}

bool Matcher::adopt(Tag mask) {
    if (!is_exact_mask(mask) || exact_.size() != 0 || by_tag_.size() != 0) return false;
    // Those that stand among the wildcards with this mask would not be found where they are sought.
    if (!wildcards_.empty()) return false;
    exact_.set_mask(mask);
    by_tag_.set_mask(mask);
    return true;
}

void Matcher::withdraw(ExpectedReceive& receive) {
    const bool is_exact = receive.mask == exact_mask();
    ExpectedReceive::List& list = is_exact ? exact_.bucket(receive.tag) : wildcards_;
    list.erase_after(
        before_first(list, [&](const ExpectedReceive& other) { return &other == &receive; }));
    if (is_exact) exact_.removed();
    receive.sequence = 0;
}

UnexpectedMessage* Matcher::find_in_order(Tag tag, Tag mask) {
    for (UnexpectedMessage& message : arrived_) {
        if (tag_matches(message.tag, tag, mask)) return &message;
    }
    return nullptr;
}

}  // namespace ucp
