// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/proto/match/matcher.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <span>

namespace ucp {

template <typename Bucket>
TagTable<Bucket>::TagTable(unsigned bits)
    : shift_(64 - bits), bucket_count_(size_t{1} << bits), buckets_(new Bucket[bucket_count_]) {}

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
    struct Candidate {
        ExpectedReceive* receive;
        Receives* table;  // null: among the others
        ExpectedReceive::List* list;
        ExpectedReceive::List::iterator before;
    } earliest{};
    const auto consider = [&](Receives* table, ExpectedReceive::List& list) {
        if (list.empty()) return;
        const auto before = before_first(list, [&](const ExpectedReceive& receive) {
            return tag_matches(tag, receive.tag, receive.mask);
        });
        ExpectedReceive* const found = element_behind(list, before);
        const bool is_earlier = found != nullptr && (earliest.receive == nullptr ||
                                                     found->sequence < earliest.receive->sequence);
        if (is_earlier) earliest = {found, table, &list, before};
    };
    consider(&exact_, exact_.bucket(tag));
    for (Receives& table : std::span(by_mask_, masks_)) consider(&table, table.bucket(tag));
    consider(nullptr, others_);
    if (earliest.receive == nullptr) return nullptr;
    earliest.list->erase_after(earliest.before);
    if (earliest.table != nullptr) earliest.table->removed();
    if (earliest.table != &exact_) --wildcards_;
    are_wildcards_standing_ =
        earliest.table == &exact_ && earliest.receive->sequence > last_wildcard_;
    earliest.receive->sequence = 0;
    return earliest.receive;
}

void Matcher::post_wildcard(ExpectedReceive& receive) {
    ++wildcards_;
    last_wildcard_ = receive.sequence;
    are_wildcards_standing_ = false;
    Receives* table = std::ranges::find_if(by_mask_, [&](const Receives& each) {
        return each.size() != 0 && each.mask() == receive.mask;
    });
    if (table == std::end(by_mask_)) {
        table = std::ranges::find(by_mask_, size_t{0}, &Receives::size);
        if (table == std::end(by_mask_)) return others_.push_back(receive);
        table->set_mask(receive.mask);
        masks_ = std::max<size_t>(masks_, table - by_mask_ + 1);
    }
    table->insert(receive);
}

bool Matcher::adopt(Tag mask) {
    if (!is_exact_mask(mask) || exact_.size() != 0 || kept_ != 0) return false;
    // Those that stand among the wildcards with this mask would not be found where they are sought.
    if (wildcards_ != 0) return false;
    exact_.set_mask(mask);
    by_tag_.set_mask(mask);
    return true;
}

void Matcher::withdraw(ExpectedReceive& receive) {
    const auto take_from = [&](ExpectedReceive::List& list) {
        const auto before =
            before_first(list, [&](const ExpectedReceive& other) { return &other == &receive; });
        if (element_behind(list, before) == nullptr) return false;
        list.erase_after(before);
        return true;
    };
    const auto take_from_table = [&](Receives& table) {
        if (table.mask() != receive.mask || !take_from(table.bucket(receive.tag))) return false;
        table.removed();
        return true;
    };
    if (!take_from_table(exact_)) {
        --wildcards_;
        if (std::ranges::none_of(by_mask_, take_from_table)) take_from(others_);
    }
    receive.sequence = 0;
}

void Matcher::hash(UnexpectedMessage& latest) {
    if (are_hashed()) return by_tag_.insert(latest);
    for (UnexpectedMessage& message : arrived_) by_tag_.insert(message);
    most_unhashed_ = 0;
}

void Matcher::unhash(UnexpectedMessage& message) {
    unlink<decltype(by_tag_)::List>(message);
    by_tag_.removed();
    if (kept_ == 0) most_unhashed_ = kFewMessages;
}

}  // namespace ucp
