/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file version.h
 * The version of UCX whose interface this library offers. Build systems of MPI runtimes read it;
 * the transport interface behind it is not offered to programs.
 */
#ifndef UCT_VERSION_H_
#define UCT_VERSION_H_

#define UCT_VERNO_MAJOR 1
#define UCT_VERNO_MINOR 22
#define UCT_VERNO_PATCH 0
#define UCT_VERNO_EXTRA ""
#define UCT_VERNO_STRING "1.22.0"
#define UCT_SCM_VERSION "0000000"
#define UCT_SCM_BRANCH "<unknown>"

#define UCT_MAJOR_BIT (24UL)
#define UCT_MINOR_BIT (16UL)
#define UCT_VERSION(major, minor) (((major) << UCT_MAJOR_BIT) | ((minor) << UCT_MINOR_BIT))
#define UCT_API ((1L << UCT_MAJOR_BIT) | (22L << UCT_MINOR_BIT))

#endif
