// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

#include "ucs/type/status.h"

// Memory handles that travel between processes of one host (ucp_memh_pack with
// UCP_MEMH_PACK_FLAG_EXPORT): memory that the library allocates for contexts with
// UCP_FEATURE_EXPORTED_MEMH has no name but a descriptor of its process, through which another
// process of the same user maps the same pages.
namespace ucp {

// Pages without a name in any file system: they go with the last process that maps them.
class SharedPages {
  public:
    SharedPages() = default;
    ~SharedPages();
    SharedPages(SharedPages&& other) noexcept;
    SharedPages& operator=(SharedPages&& other) noexcept;

    bool is_mapped() const { return address_ != nullptr; }
    void* address() const { return address_; }
    size_t length() const { return length_; }

    // @param hint  where they should be, or with `fixed` must be
    static ucs_status_t create(size_t length, void* hint, bool fixed, SharedPages* pages);

    static size_t packed_size();
    // The bytes that let another process map the first `used` bytes of them.
    void pack(void* buffer, size_t used) const;
    // Map the pages of another process, or of this one once more.
    // @param used  as given to pack()
    // @return UCS_ERR_INVALID_PARAM: these are no such bytes; UCS_ERR_UNREACHABLE: another host, or
    //         the process is gone or forbids it; UCS_ERR_NO_MEMORY
    static ucs_status_t open(const void* packed, SharedPages* pages, size_t* used);

  private:
    int descriptor_ = -1;
    void* address_ = nullptr;
    size_t length_ = 0;
};

}  // namespace ucp
