// SPDX-License-Identifier: BSD-3-Clause
// Compiled alone: it defines functions of the library's headers without their parameters.
#include "softhca/verbs/unsupported.h"

// What a libibverbs exports besides and the emulation has not: the drivers' private interface to
// the kernel (other providers' libraries bind to it when they are loaded), imports of objects,
// multicast.

#pragma GCC visibility push(default)
extern "C" {
[[gnu::alias(
    "softhca_unsupported_pointer")]] decltype(unsupported_pointer) _verbs_init_and_alloc_context,
    verbs_open_device;
[[gnu::alias("softhca_unsupported_int")]] decltype(unsupported_int) ibv_cmd_advise_mr,
    ibv_cmd_alloc_dm, ibv_cmd_alloc_mw, ibv_cmd_alloc_pd, ibv_cmd_attach_mcast, ibv_cmd_close_xrcd,
    ibv_cmd_create_ah, ibv_cmd_create_counters, ibv_cmd_create_cq, ibv_cmd_create_cq_ex,
    ibv_cmd_create_flow, ibv_cmd_create_flow_action_esp, ibv_cmd_create_qp, ibv_cmd_create_qp_ex,
    ibv_cmd_create_qp_ex2, ibv_cmd_create_rwq_ind_table, ibv_cmd_create_srq, ibv_cmd_create_srq_ex,
    ibv_cmd_create_wq, ibv_cmd_dealloc_mw, ibv_cmd_dealloc_pd, ibv_cmd_dereg_mr, ibv_cmd_destroy_ah,
    ibv_cmd_destroy_counters, ibv_cmd_destroy_cq, ibv_cmd_destroy_flow, ibv_cmd_destroy_flow_action,
    ibv_cmd_destroy_qp, ibv_cmd_destroy_rwq_ind_table, ibv_cmd_destroy_srq, ibv_cmd_destroy_wq,
    ibv_cmd_detach_mcast, ibv_cmd_free_dm, ibv_cmd_get_context, ibv_cmd_modify_cq,
    ibv_cmd_modify_flow_action_esp, ibv_cmd_modify_qp, ibv_cmd_modify_qp_ex, ibv_cmd_modify_srq,
    ibv_cmd_modify_wq, ibv_cmd_open_qp, ibv_cmd_open_xrcd, ibv_cmd_poll_cq, ibv_cmd_post_recv,
    ibv_cmd_post_send, ibv_cmd_post_srq_recv, ibv_cmd_query_context, ibv_cmd_query_device_any,
    ibv_cmd_query_mr, ibv_cmd_query_port, ibv_cmd_query_qp, ibv_cmd_query_srq,
    ibv_cmd_read_counters, ibv_cmd_reg_dm_mr, ibv_cmd_reg_dmabuf_mr, ibv_cmd_reg_mr,
    ibv_cmd_req_notify_cq, ibv_cmd_rereg_mr, ibv_cmd_resize_cq, execute_ioctl, ibv_attach_mcast,
    ibv_detach_mcast, ibv_query_ece, ibv_set_ece, verbs_init_cq;
[[gnu::alias("softhca_unsupported_void")]] decltype(unsupported_void) ibv_copy_ah_attr_from_kern,
    ibv_copy_path_rec_from_kern, ibv_copy_path_rec_to_kern, ibv_copy_qp_attr_from_kern,
    verbs_register_driver_34, verbs_set_ops, verbs_uninit_context,
    __verbs_log;  // NOLINT(bugprone-reserved-identifier): libibverbs calls it so
}
#pragma GCC visibility pop
