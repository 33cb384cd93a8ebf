// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/on_stream/operations.h"

#include <algorithm>
#include <new>

#include "ucs/log/log.h"
#include "ucs/memory/detector.h"

namespace ucp {

using ucs::StreamStop;

StreamOperations::~StreamOperations() {
    while (!all_.empty()) {
        StreamOperation& operation = all_.front();
        open_for_good(operation);
        destroy(operation);
    }
}

StreamOperation* StreamOperations::make(std::span<const ucpx_stream_part_t> parts) {
    StreamOperation* const operation = memory_.create();
    if (operation == nullptr) throw std::bad_alloc();
    all_.push_back(*operation);
    operation->owner = this;
    for (const ucpx_stream_part_t& what : parts) {
        StreamPart* const part = part_memory_.create(what, *operation);
        if (part == nullptr) {
            destroy(*operation);
            throw std::bad_alloc();
        }
        operation->parts.push_back(*part);
    }
    return operation;
}

void StreamOperations::destroy(StreamOperation& operation) {
    operation.parts.clear_and_dispose([this](StreamPart* part) { part_memory_.destroy(part); });
    all_.erase(all_.iterator_to(operation));
    memory_.destroy(&operation);
}

ucs_status_t StreamOperations::enqueue(std::span<const ucpx_stream_part_t> parts, void* stream,
                                       StreamOperation** handle) {
    watched_.reserve(watched_.size() + 1);
    StreamOperation* const operation = make(parts);
    const bool happens_once = std::ranges::any_of(parts, [](const ucpx_stream_part_t& part) {
        return part.kind == UCPX_STREAM_PART_REQUEST;
    });
    const ucs_status_t status = ucs::MemoryDetectors::insert_stop(
        stream, handle != nullptr && !happens_once, &operation->stop);
    if (status != UCS_OK) {
        if (status == UCS_ERR_UNSUPPORTED) {
            ucs::log_error("no operations on streams: nothing here can make stream {} wait",
                           stream);
        }
        destroy(*operation);
        return status;
    }
    watched_.push_back(operation);
    operation->is_watched = true;
    operation->has_handle = handle != nullptr;
    if (handle != nullptr) *handle = operation;
    work_.notify();
    return UCS_OK;
}

void StreamOperations::release(StreamOperation& operation) {
    operation.has_handle = false;
    // What is watched goes when it is looked at, also if it has ended meanwhile.
    if (operation.state == StreamOperation::State::kEnded && !operation.is_watched) {
        destroy(operation);
    }
}

unsigned StreamOperations::run_deferred() {
    unsigned events = 0;
    // A part's end may call the program, which may add others: by index.
    for (size_t i = 0; i < watched_.size(); ++i) events += look_at(*watched_[i]);
    std::erase_if(watched_, [this](StreamOperation* operation) {
        using State = StreamOperation::State;
        const bool has_ended = operation->state == State::kEnded;
        const bool is_given_back =
            !operation->has_handle &&
            (has_ended || (operation->is_captured() && operation->state == State::kArmed));
        if (!is_given_back) {
            operation->is_watched = !has_ended;
            return has_ended;
        }
        if (!has_ended) operation->stop.owner->remove_stop(operation->stop, false);
        destroy(*operation);
        return true;
    });
    if (any()) work_.notify();
    return events;
}

unsigned StreamOperations::look_at(StreamOperation& operation) {
    switch (operation.state) {
        case StreamOperation::State::kArmed:
            if (operation.stop.look() != StreamStop::kReached) return 0;
            begin(operation);
            return 1;
        case StreamOperation::State::kRunning:
            break;
        case StreamOperation::State::kPassing:
            if (operation.stop.look() == StreamStop::kPassed) {
                operation.state = StreamOperation::State::kArmed;
                operation.stop.set(StreamStop::kIdle);
            }
            return 0;
        case StreamOperation::State::kEnded:
            return 0;
    }
    if (!operation.has_looked_at) return 0;
    // The last end may let the operation run anew, but not before it is looked at again.
    ++operation.running;
    unsigned events = 0;
    for (StreamPart& part : operation.parts) {
        if (part.state != StreamPart::State::kLookedAt) continue;
        const ucs_status_t status = parts_->look(part);
        if (status == UCS_INPROGRESS) continue;
        ++events;
        part_ended(part, status);
    }
    one_less(operation);
    return events;
}

void StreamOperations::begin(StreamOperation& operation) {
    operation.state = StreamOperation::State::kRunning;
    operation.run_error = UCS_OK;
    operation.length = 0;
    operation.has_looked_at = false;
    operation.running = 1;
    for (StreamPart& part : operation.parts) {
        ++operation.running;
        part.error = UCS_OK;
        part.state = StreamPart::State::kBegun;
        const ucs_status_t status = parts_->begin(part);
        if (part.state == StreamPart::State::kLookedAt) operation.has_looked_at = true;
        if (status != UCS_INPROGRESS) part_ended(part, status);
    }
    one_less(operation);
}

void StreamOperations::ended(StreamPart& part, ucs_status_t status) {
    if (status != UCS_OK && part.error == UCS_OK) part.error = status;
    if (--part.outstanding == 0) part_ended(part, part.error);
}

void StreamOperations::part_ended(StreamPart& part, ucs_status_t status) {
    StreamOperation& operation = part.operation;
    part.state = StreamPart::State::kIdle;
    part.request = nullptr;
    if (status != UCS_OK && operation.run_error == UCS_OK) operation.run_error = status;
    one_less(operation);
}

void StreamOperations::one_less(StreamOperation& operation) {
    if (--operation.running != 0) return;
    ++operation.runs;
    if (operation.run_error != UCS_OK) {
        ++operation.failures;
        if (operation.first_error == UCS_OK) operation.first_error = operation.run_error;
        if (!operation.has_handle) {
            ucs::log_warn("an operation on a stream failed: {}",
                          ucs_status_string(operation.run_error));
        }
    }
    if (operation.is_captured()) {
        operation.state = StreamOperation::State::kPassing;
        operation.stop.set(StreamStop::kGo);
    } else {
        operation.state = StreamOperation::State::kEnded;
        operation.stop.set(StreamStop::kGo);
        operation.stop.owner->remove_stop(operation.stop, false);
    }
}

void StreamOperations::cancel() {
    thread_.reset();
    for (StreamOperation* operation : watched_) {
        for (StreamPart& part : operation->parts) {
            if (part.state == StreamPart::State::kIdle) {
                parts_->drop(part);
            } else {
                parts_->cancel(part);
            }
        }
    }
    watched_.clear();
}

void StreamOperations::open_for_good(StreamOperation& operation) {
    if (operation.state == StreamOperation::State::kEnded) return;
    operation.stop.set(StreamStop::kGo | StreamStop::kIdle);
    operation.stop.owner->remove_stop(operation.stop, operation.is_captured());
}

}  // namespace ucp
