/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file sys_device.h
 * Devices of the system. UCX has this in a header with much more, which one of its name would hide.
 */
#ifndef UCS_SYS_DEVICE_H_
#define UCS_SYS_DEVICE_H_

#include <stdint.h>

/** No device, or not known which. */
#define UCS_SYS_DEVICE_ID_UNKNOWN UINT8_MAX

/** A device of the system; UCS_SYS_DEVICE_ID_UNKNOWN in all that this library says. */
typedef uint8_t ucs_sys_device_t;

#endif
