// SPDX-License-Identifier: BSD-3-Clause
// Compiled alone: it defines functions of the library's headers without their parameters.
#include <cerrno>

/// What a libibverbs exports besides and the emulation has not: the drivers' private interface to
/// the kernel (other providers' libraries bind to it when they are loaded), imports of objects,
/// multicast. Arguments do not matter to the refusal, so there are none.
// clang-format off
#define ABSENT_POINTER(name) \
    extern "C" __attribute__((visibility("default"))) void* name() { \
        errno = EOPNOTSUPP; \
        return nullptr; \
    }
#define ABSENT_INT(name) \
    extern "C" __attribute__((visibility("default"))) int name() { return EOPNOTSUPP; }
#define ABSENT_VOID(name) \
    extern "C" __attribute__((visibility("default"))) void name() {}

ABSENT_POINTER(_verbs_init_and_alloc_context)
ABSENT_POINTER(verbs_open_device)
ABSENT_POINTER(ibv_reg_dmabuf_mr)

ABSENT_INT(ibv_cmd_advise_mr)
ABSENT_INT(ibv_cmd_alloc_dm)
ABSENT_INT(ibv_cmd_alloc_mw)
ABSENT_INT(ibv_cmd_alloc_pd)
ABSENT_INT(ibv_cmd_attach_mcast)
ABSENT_INT(ibv_cmd_close_xrcd)
ABSENT_INT(ibv_cmd_create_ah)
ABSENT_INT(ibv_cmd_create_counters)
ABSENT_INT(ibv_cmd_create_cq)
ABSENT_INT(ibv_cmd_create_cq_ex)
ABSENT_INT(ibv_cmd_create_flow)
ABSENT_INT(ibv_cmd_create_flow_action_esp)
ABSENT_INT(ibv_cmd_create_qp)
ABSENT_INT(ibv_cmd_create_qp_ex)
ABSENT_INT(ibv_cmd_create_qp_ex2)
ABSENT_INT(ibv_cmd_create_rwq_ind_table)
ABSENT_INT(ibv_cmd_create_srq)
ABSENT_INT(ibv_cmd_create_srq_ex)
ABSENT_INT(ibv_cmd_create_wq)
ABSENT_INT(ibv_cmd_dealloc_mw)
ABSENT_INT(ibv_cmd_dealloc_pd)
ABSENT_INT(ibv_cmd_dereg_mr)
ABSENT_INT(ibv_cmd_destroy_ah)
ABSENT_INT(ibv_cmd_destroy_counters)
ABSENT_INT(ibv_cmd_destroy_cq)
ABSENT_INT(ibv_cmd_destroy_flow)
ABSENT_INT(ibv_cmd_destroy_flow_action)
ABSENT_INT(ibv_cmd_destroy_qp)
ABSENT_INT(ibv_cmd_destroy_rwq_ind_table)
ABSENT_INT(ibv_cmd_destroy_srq)
ABSENT_INT(ibv_cmd_destroy_wq)
ABSENT_INT(ibv_cmd_detach_mcast)
ABSENT_INT(ibv_cmd_free_dm)
ABSENT_INT(ibv_cmd_get_context)
ABSENT_INT(ibv_cmd_modify_cq)
ABSENT_INT(ibv_cmd_modify_flow_action_esp)
ABSENT_INT(ibv_cmd_modify_qp)
ABSENT_INT(ibv_cmd_modify_qp_ex)
ABSENT_INT(ibv_cmd_modify_srq)
ABSENT_INT(ibv_cmd_modify_wq)
ABSENT_INT(ibv_cmd_open_qp)
ABSENT_INT(ibv_cmd_open_xrcd)
ABSENT_INT(ibv_cmd_poll_cq)
ABSENT_INT(ibv_cmd_post_recv)
ABSENT_INT(ibv_cmd_post_send)
ABSENT_INT(ibv_cmd_post_srq_recv)
ABSENT_INT(ibv_cmd_query_context)
ABSENT_INT(ibv_cmd_query_device_any)
ABSENT_INT(ibv_cmd_query_mr)
ABSENT_INT(ibv_cmd_query_port)
ABSENT_INT(ibv_cmd_query_qp)
ABSENT_INT(ibv_cmd_query_srq)
ABSENT_INT(ibv_cmd_read_counters)
ABSENT_INT(ibv_cmd_reg_dm_mr)
ABSENT_INT(ibv_cmd_reg_dmabuf_mr)
ABSENT_INT(ibv_cmd_reg_mr)
ABSENT_INT(ibv_cmd_req_notify_cq)
ABSENT_INT(ibv_cmd_rereg_mr)
ABSENT_INT(ibv_cmd_resize_cq)
ABSENT_INT(execute_ioctl)
ABSENT_INT(ibv_attach_mcast)
ABSENT_INT(ibv_detach_mcast)
ABSENT_INT(ibv_query_ece)
ABSENT_INT(ibv_set_ece)
ABSENT_INT(verbs_init_cq)

ABSENT_VOID(ibv_copy_ah_attr_from_kern)
ABSENT_VOID(ibv_copy_path_rec_from_kern)
ABSENT_VOID(ibv_copy_path_rec_to_kern)
ABSENT_VOID(ibv_copy_qp_attr_from_kern)
ABSENT_VOID(verbs_register_driver_34)
ABSENT_VOID(verbs_set_ops)
ABSENT_VOID(verbs_uninit_context)
ABSENT_VOID(__verbs_log)
