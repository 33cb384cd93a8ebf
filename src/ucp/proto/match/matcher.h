// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <boost/intrusive/list.hpp>
#include <boost/intrusive/slist.hpp>

namespace ucp {

using Tag = uint64_t;
inline constexpr Tag kFullTagMask = ~Tag{0};

// Does a receive with this mask name its messages, all but a few bits of the tag?
constexpr bool is_exact_mask(Tag mask) {
    return std::popcount(mask) >= 60;
}

constexpr bool tag_matches(Tag message, Tag wanted, Tag mask) {
    return ((message ^ wanted) & mask) == 0;
}

// A posted receive, embedded in its request. Mostly the first of its list is the one that is taken,
// so lists are linked one way, and nothing is written into neighbours.
struct ExpectedReceive {
    using Hook = boost::intrusive::slist_member_hook<
        boost::intrusive::link_mode<boost::intrusive::normal_link>>;

    Hook hook;
    Tag tag;
    Tag mask;
    uint64_t sequence = 0;  // from 1, in the order of posting; 0: not posted

    bool is_posted() const { return sequence != 0; }

    using List = boost::intrusive::slist<
        ExpectedReceive,
        boost::intrusive::member_hook<ExpectedReceive, Hook, &ExpectedReceive::hook>,
        boost::intrusive::constant_time_size<false>, boost::intrusive::cache_last<true>,
        boost::intrusive::linear<true>>;
};

// A message that no receive was posted for when it came.
struct UnexpectedMessage {
    using Hook = boost::intrusive::list_member_hook<
        boost::intrusive::link_mode<boost::intrusive::normal_link>>;

    Hook bucket_hook;
    Hook order_hook;
    Tag tag;

    template <Hook UnexpectedMessage::*Which>
    using List =
        boost::intrusive::list<UnexpectedMessage,
                               boost::intrusive::member_hook<UnexpectedMessage, Hook, Which>,
                               boost::intrusive::constant_time_size<false>>;
};

// Lists by hash of the tag; the number of buckets follows the number of elements.
template <typename Bucket>
class TagTable {
  public:
    using List = Bucket;
    using Element = typename Bucket::value_type;

    // @param bits  2 to their power is how many buckets it begins with
    explicit TagTable(unsigned bits = 8);

    // The bits of tags that count. Only while the table is empty.
    void set_mask(Tag mask) { mask_ = mask; }
    Tag mask() const { return mask_; }
    Bucket& bucket(Tag tag) { return buckets_[index(tag & mask_)]; }
    void insert(Element& element) {
        if (++size_ > bucket_count_) [[unlikely]]
            grow();
        bucket(element.tag).push_back(element);
    }
    // The caller has taken an element out of its bucket.
    void removed() { --size_; }
    size_t size() const { return size_; }
    template <typename Taker>
    void drain(Taker taker) {
        for (size_t i = 0; i < bucket_count_; ++i)
            buckets_[i].clear_and_dispose([&](Element* element) { taker(*element); });
        size_ = 0;
    }

  private:
    size_t index(Tag tag) const { return (tag * 0x9E3779B97F4A7C15u) >> shift_; }
    void grow();

    unsigned shift_;
    size_t bucket_count_;
    Tag mask_ = kFullTagMask;
    size_t size_ = 0;
    std::unique_ptr<Bucket[]> buckets_;
};

// Pairs posted receives with arrived messages.
//
// Rules of matching: a message goes to the earliest posted receive that fits it; a receive takes
// the earliest arrived message that fits it. Receives stand in a hash by tag for each mask, those
// of more masks than there are such tables in one queue; posting numbers decide between them. So
// receives that stay, and are many, cost a message that is not for them no more than one would.
// Messages stand in one queue in the order of arrival, and while there are, or have been, more than
// a few since none was there, in a hash by tag as well. Owns no element: requests and messages come
// from the worker's pools. The tables double when there are more elements than buckets, which is
// the only allocation, and rare.
//
// The *exact mask* is the one that the program names its messages by: full in Open MPI, all but two
// bits in MPICH: a message looks at the table of receives with that mask alone while no others are
// posted. It is taken over from a receive that comes while nothing is posted or kept.
class Matcher {
  public:
    // The receive that an arriving message belongs to, taken out of the queues; null if none.
    ExpectedReceive* take_expected(Tag tag) {
        if (wildcards_ != 0) [[unlikely]]
            return take_earliest(tag);
        ExpectedReceive::List& bucket = exact_.bucket(tag);
        if (bucket.empty()) return nullptr;
        ExpectedReceive& first = bucket.front();
        if (!tag_matches(tag, first.tag, exact_mask())) [[unlikely]]
            return take_earliest(tag);
        bucket.pop_front();
        if (!bucket.empty()) __builtin_prefetch(&bucket.front(), 1);  // the next message's
        exact_.removed();
        first.sequence = 0;
        return &first;
    }
    // Post a receive; the caller has found no message for it.
    void post(ExpectedReceive& receive) {
        receive.sequence = ++receives_;
        if (receive.mask == exact_mask() || adopt(receive.mask)) [[likely]] {
            exact_.insert(receive);
        } else {
            post_wildcard(receive);
        }
    }
    // Take a posted receive back.
    void withdraw(ExpectedReceive& receive);

    // The earliest message that fits, left in the queues; null if none.
    UnexpectedMessage* find_unexpected(Tag tag, Tag mask) {
        if (are_hashed() && mask == exact_mask()) return find_in(by_tag_.bucket(tag), tag, mask);
        return find_in(arrived_, tag, mask);
    }
    // Keep a message; the caller has found no receive for it.
    void keep(UnexpectedMessage& message) {
        arrived_.push_back(message);
        if (++kept_ > most_unhashed_) [[unlikely]]
            hash(message);
    }
    void remove(UnexpectedMessage& message) {
        --kept_;
        unlink<decltype(arrived_)>(message);
        if (are_hashed()) [[unlikely]]
            unhash(message);
    }

    // Receives so far: posted, or noted as they found their message here.
    uint64_t receives() const { return receives_; }
    void note_found() { ++receives_; }
    // Is a receive posted, whatever it is for?
    bool has_expected() const { return exact_.size() + wildcards_ != 0; }
    // Receives whose messages the program waits for next, as far as it can be told: receives that
    // do not name their messages, and have stood since before one that did, may stand for ever, as
    // those for questions of peers do.
    size_t awaited() const { return exact_.size() + (are_wildcards_standing_ ? 0 : wildcards_); }
    size_t unexpected_count() const { return kept_; }

    // Withdraw all receives and hand each to `taker`, which may free it.
    template <typename Taker>
    void drain_expected(Taker taker) {
        const auto take = [&](ExpectedReceive& receive) {
            receive.sequence = 0;
            taker(receive);
        };
        exact_.drain(take);
        for (Receives& receives : by_mask_) receives.drain(take);
        others_.clear_and_dispose([&](ExpectedReceive* receive) { take(*receive); });
        wildcards_ = 0;
    }
    // Remove the messages for which `condition` holds and hand each to `taker`, which may free it.
    template <typename Condition, typename Taker>
    void remove_unexpected_if(Condition condition, Taker taker) {
        for (auto it = arrived_.begin(); it != arrived_.end();) {
            UnexpectedMessage& message = *it++;
            if (!condition(message)) continue;
            remove(message);
            taker(message);
        }
    }

  private:
    using Receives = TagTable<ExpectedReceive::List>;
    // What programs have beside the exact one: any source, any tag, both.
    static constexpr size_t kMasks = 4;
    static constexpr unsigned kFewBits = 6;
    // To look at so many messages takes no longer than to keep one in the hash.
    static constexpr size_t kFewMessages = 4;

    // Without what erase() returns, which takes as long as the rest.
    template <typename List>
    static void unlink(UnexpectedMessage& message) {
        List::node_algorithms::unlink(List::value_traits::to_node_ptr(message));
    }
    template <typename List>
    static UnexpectedMessage* find_in(List& list, Tag tag, Tag mask) {
        for (UnexpectedMessage& message : list) {
            if (tag_matches(message.tag, tag, mask)) return &message;
        }
        return nullptr;
    }
    // All messages are in by_tag_; else none is.
    bool are_hashed() const { return most_unhashed_ == 0; }
    // The latest message, and all others where they are not.
    [[gnu::noinline]] void hash(UnexpectedMessage& latest);
    [[gnu::noinline]] void unhash(UnexpectedMessage& message);
    ExpectedReceive* take_earliest(Tag tag);
    void post_wildcard(ExpectedReceive& receive);
    // Make it the exact mask, if it is fit for that and nothing depends on the other one.
    bool adopt(Tag mask);
    Tag exact_mask() const { return exact_.mask(); }

    Receives exact_;
    size_t wildcards_ = 0;        // receives in by_mask_ and others_
    uint64_t last_wildcard_ = 0;  // number of the one that was posted last
    // One of the exact mask that was posted behind all of these was the last that was taken.
    bool are_wildcards_standing_ = false;
    uint64_t receives_ = 0;
    size_t kept_ = 0;                      // messages
    size_t most_unhashed_ = kFewMessages;  // of them; 0: are_hashed()
    TagTable<UnexpectedMessage::List<&UnexpectedMessage::bucket_hook>> by_tag_;
    UnexpectedMessage::List<&UnexpectedMessage::order_hook> arrived_;
    // Of other masks, one each; those behind the first `masks_` have had none.
    Receives by_mask_[kMasks] = {Receives(kFewBits), Receives(kFewBits), Receives(kFewBits),
                                 Receives(kFewBits)};
    size_t masks_ = 0;
    ExpectedReceive::List others_;  // of more masks
};

}  // namespace ucp
