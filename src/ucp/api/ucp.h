/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file ucp.h
 * The communication interface: source and binary compatible with UCX 1.13, with the additions up to
 * 1.22. Each header below holds one subject. What lets kernels of a GPU communicate is in headers
 * of its own, as with UCX: device/ucp_host.h and device/ucp_device_impl.h.
 *
 * Rules that hold throughout:
 * - Structures with a field_mask are read and filled only where the mask says so, and never beyond
 *   the fields the caller knows: new fields are added at the end.
 * - A worker, its endpoints, their remote keys and requests form one unit for threads. Calls into a
 *   unit must not overlap unless its worker was granted UCS_THREAD_MODE_MULTI; with
 *   UCS_THREAD_MODE_SINGLE they come from one thread. Exceptions are stated where they are.
 * - Contexts, and memory handles, are shared by threads only with mt_workers_shared.
 * - Sizes and lengths are in bytes, counts in elements of a datatype, times in seconds.
 * - Arguments that break a contract may be refused with UCS_ERR_INVALID_PARAM; NULL handles are not
 *   checked for.
 */
#ifndef UCP_H_
#define UCP_H_

#include <stdio.h>
#include <sys/types.h>

#include "ucp/api/ucp_am.h"
#include "ucp/api/ucp_compat.h"
#include "ucp/api/ucp_context.h"
#include "ucp/api/ucp_datatype.h"
#include "ucp/api/ucp_def.h"
#include "ucp/api/ucp_ep.h"
#include "ucp/api/ucp_listener.h"
#include "ucp/api/ucp_mem.h"
#include "ucp/api/ucp_request.h"
#include "ucp/api/ucp_rma.h"
#include "ucp/api/ucp_stream.h"
#include "ucp/api/ucp_tag.h"
#include "ucp/api/ucp_version.h"
#include "ucp/api/ucp_worker.h"
#include "ucs/config/types.h"
#include "ucs/memory/memory_type.h"
#include "ucs/sys/compiler_def.h"
#include "ucs/type/cpu_set.h"
#include "ucs/type/thread_mode.h"

#endif
