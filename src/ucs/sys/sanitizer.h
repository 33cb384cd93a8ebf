// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#if defined(__SANITIZE_THREAD__)
extern "C" {
// Of the thread sanitizer's run time (LLVM, compiler-rt/lib/tsan/rtl/tsan_interface_ann.h).
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif

namespace ucs {

// While it lives, the thread sanitizer ignores what this thread reads and writes. For accesses that
// stand for an adapter's, or for those of a peer process that happens to be this one: what orders
// them goes through memory that is mapped twice, where the sanitizer cannot see it.
class IgnoredByThreadSanitizer {
  public:
#if defined(__SANITIZE_THREAD__)
    IgnoredByThreadSanitizer() {
        AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
        AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
    }
    ~IgnoredByThreadSanitizer() {
        AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
        AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
    }
#else
    // Not defaulted, or a compiler would call the variable unused.
    IgnoredByThreadSanitizer() {}
    ~IgnoredByThreadSanitizer() {}
#endif
    IgnoredByThreadSanitizer(IgnoredByThreadSanitizer&&) = delete;
};

}  // namespace ucs
