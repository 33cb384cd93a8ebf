// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <boost/intrusive/list.hpp>
#include <cassert>

namespace ucs {

// Queues of work that waits for resources. Elements of one group (an endpoint) are served in
// order; groups that are scheduled are served in turn, one element each, so that no endpoint
// starves another. Every operation is O(1) per element it touches; nothing is allocated.
//
// Elements are base classes of requests, owned by the caller; a linked element must not be
// destroyed. One thread at a time.
class Arbiter {
    template <boost::intrusive::link_mode_type Mode>
    using Hook = boost::intrusive::list_base_hook<boost::intrusive::link_mode<Mode>>;

  public:
    class Element : public Hook<boost::intrusive::safe_link> {
      public:
        bool is_queued() const { return is_linked(); }
    };

    class Group : public Hook<boost::intrusive::auto_unlink> {
      public:
        Group() = default;
        Group(Group&&) = delete;
        // Empty when it is destroyed; never destroyed by a callback about itself.
        ~Group() { assert(elements_.empty()); }

        bool empty() const { return elements_.empty(); }
        bool is_scheduled() const { return is_linked(); }

        void push_back(Element& element) { elements_.push_back(element); }
        // For control messages, which must not wait behind the application's.
        void push_front(Element& element) { elements_.push_front(element); }

        // For a request that is cancelled; the element must be in this group.
        void remove(Element& element) { elements_.erase(elements_.iterator_to(element)); }

        // Undefined for an empty group.
        Element& front() { return elements_.front(); }
        Element& pop_front() {
            Element& element = elements_.front();
            elements_.pop_front();
            return element;
        }

      private:
        using List = boost::intrusive::list<Element, boost::intrusive::constant_time_size<false>>;

        List elements_;
    };

    // What became of the element that a dispatch callback was given.
    enum class Result {
        kDone,         // it is the callback's: the group's next element has its turn
        kUnscheduled,  // it stays first in its group, which leaves the arbiter till schedule()
        kLater,        // it stays first in its group, which has its turn at the next dispatch
        kStop,         // as kLater, and no other group is served either: the shared resource is out
    };

    Arbiter() = default;
    Arbiter(Arbiter&&) = delete;

    bool empty() const { return scheduled_.empty(); }

    // Gives a group that has elements its turn; no effect on one scheduled already or empty.
    void schedule(Group& group) {
        if (!group.is_linked() && !group.empty()) scheduled_.push_back(group);
    }

    // Takes the group out of turn; its elements stay. No effect on one that is not scheduled.
    void unschedule(Group& group) {
        if (group.is_linked()) group.unlink();
    }

    // Serves groups in turn, callback(Group&, Element&) -> Result, until each has been emptied or
    // has refused, or until kStop. The element is out of its queue during the call: a callback may
    // free it and return kDone. It may push to any group and schedule any; it may purge any, its
    // own only if it returns kDone. It must not dispatch. An element that stays goes back to the
    // front, before what the callback has pushed there.
    template <typename Callback>
    void dispatch(Callback&& callback) {
        assert(!dispatching_);
        dispatching_ = true;
        Groups later;
        bool stopped = false;
        while (!stopped && !scheduled_.empty()) {
            Group& group = scheduled_.front();
            Element& element = group.pop_front();
            const Result result = callback(group, element);
            if (result != Result::kDone) group.push_front(element);
            unschedule(group);
            switch (result) {
                case Result::kDone:
                    schedule(group);
                    break;
                case Result::kUnscheduled:
                    break;
                case Result::kLater:
                    later.push_back(group);
                    break;
                case Result::kStop:
                    scheduled_.push_front(group);
                    stopped = true;
                    break;
            }
        }
        scheduled_.splice(scheduled_.end(), later);
        dispatching_ = false;
    }

    // Empties the group in order and takes it out of turn; callback(Element&) gets each element,
    // already out of the queue. Elements that the callback pushes to this group are purged too.
    template <typename Callback>
    void purge(Group& group, Callback&& callback) {
        while (!group.empty()) callback(group.pop_front());
        unschedule(group);
    }

  private:
    using Groups = boost::intrusive::list<Group, boost::intrusive::constant_time_size<false>>;

    Groups scheduled_;
    bool dispatching_ = false;
};

}  // namespace ucs
