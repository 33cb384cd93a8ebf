/* SPDX-License-Identifier: BSD-3-Clause */
/** @file ucp_version.h The version of UCX's interface that these headers declare. */
#ifndef UCP_API_VERSION

#define UCP_VERSION_MAJOR_SHIFT 24
#define UCP_VERSION_MINOR_SHIFT 16
/** One number for a version, such that a newer one compares greater. */
#define UCP_VERSION(_major, _minor) \
    (((_major) << UCP_VERSION_MAJOR_SHIFT) | ((_minor) << UCP_VERSION_MINOR_SHIFT))

#define UCP_API_MAJOR 1
#define UCP_API_MINOR 22
#define UCP_API_VERSION UCP_VERSION(1, 22)

#endif
