// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "softhca/adapter/fabric.h"

// The entry points that programs reach through a context's function pointers.

namespace softhca {

// The fabric that device lists are taken from: the current virtual one, else the host's.
std::shared_ptr<Fabric> current_fabric();

// @param cmd_fd  the context's from now on
ibv_context* open_context(const Device& device, std::shared_ptr<Fabric> fabric, int cmd_fd);

int poll_cq(ibv_cq* cq, int num, ibv_wc* wc);
int req_notify_cq(ibv_cq* cq, int solicited_only);
ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr);
int modify_cq(ibv_cq* cq, ibv_modify_cq_attr* attr);
// Removes a QP's completions and frees what they carried.
void clean_cq(Cq& cq, uint32_t qpn);

int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad);
int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad);
ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* attr);
int get_srq_num(ibv_srq* srq, uint32_t* number);
// A receive queue's record and ring. @return nullptr with errno.
RqRecord* create_rq(Fabric& fabric, uint16_t lid, uint32_t depth, uint32_t max_sge, uint32_t pd);
void destroy_rq(Fabric& fabric, RqRecord& rq);

ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attr);
// @param dv  the direct-verbs part, or nullptr
ibv_qp* create_any_qp(Context& context, ibv_qp_init_attr_ex& attr, const mlx5dv_qp_init_attr* dv);
void forget_qp(Qp& qp);

// @param is_on_gpu  memory of a GPU, which is held
ibv_mr* reg_mr(ibv_pd* pd, void* addr, size_t length, uint64_t iova, unsigned access,
               bool is_on_gpu = false);

// Bytes of device memory that a device grants a process.
constexpr uint64_t kDeviceMemory = 256 * 1024;
ibv_dm* alloc_dm(ibv_context* context, ibv_alloc_dm_attr* attr);
int free_dm(ibv_dm* dm);
ibv_mr* reg_dm_mr(ibv_pd* pd, ibv_dm* dm, uint64_t offset, size_t length, unsigned access);

ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type);
int dealloc_mw(ibv_mw* mw);
int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind);

ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* attr);
int dealloc_td(ibv_td* td);
ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attr);

int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input,
                    ibv_device_attr_ex* attr, size_t size);
int query_port(ibv_context* context, uint8_t port, ibv_port_attr* attr, size_t size);
int query_rt_values(ibv_context* context, ibv_values_ex* values);

// Whether ports speak Ethernet (RoCE) instead of InfiniBand: SOFTHCA_LINK_LAYER=ethernet.
bool ethernet();
// Does the port's table of GIDs have the entry that packets with this address come from?
bool has_source_gid(const ibv_ah_attr& attr);

// Waits until a handle's events are all acknowledged.
void await_acks(pthread_mutex_t& mutex, pthread_cond_t& cond, const uint32_t& completed,
                const std::atomic<uint32_t>& delivered);
// Drops events of an object that nobody has read yet.
void drop_async_events(Context& context, void* object);
void drop_comp_events(Cq& cq);

// Posting of send requests, by both interfaces: ibv_post_send and ibv_wr_*.

// Fills the function pointers of ibv_qp_ex and mlx5dv_qp_ex.
void install_builders(Qp& qp);
int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad);

// Opens and closes a batch; between them sq_lock is held.
int begin_batch(Qp& qp);
void end_batch(Qp& qp);
// The next free slot, cleared, at build_tail; nullptr and build_error if there is none.
Wqe* next_slot(Qp& qp, uint8_t opcode);
void set_address(Wqe& wqe, const Ah& ah);
void set_bind(Wqe& wqe, const ibv_mw& mw, uint32_t rkey, const ibv_mw_bind_info& info);

// What programs ask of mlx5 by environment variables. Entries and queues are laid out in our own
// way, but what an adapter would refuse is refused here too. All return 0 or an errno.

// MLX_CQ_ALLOC_TYPE and its like for QPs and SRQs: HUGE wants a huge page, or nothing.
int check_queue_memory(const char* variable);

// Completion entries are 64 or 128 bytes long.
int check_cqe_size(unsigned long size);
int check_cqe_size_variable();

}  // namespace softhca
