/* SPDX-License-Identifier: BSD-3-Clause */
/* Processes that come later: MPI_Comm_spawn, and two groups that meet by connect and accept. */
#include "check.h"

static int child(MPI_Comm parent) {
    int value = -1, sum = 0;
    MPI_Bcast(&value, 1, MPI_INT, 0, parent);
    value += rank;
    MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Comm merged;
    MPI_Intercomm_merge(parent, 1, &merged);
    int merged_rank, one = 1, total = 0;
    MPI_Comm_rank(merged, &merged_rank);
    MPI_Allreduce(&one, &total, 1, MPI_INT, MPI_SUM, merged);
    char* block = malloc(1 << 18);
    fill(block, 1 << 18, (unsigned)rank);
    if (rank == 0) MPI_Send(&sum, 1, MPI_INT, 0, 1, parent);
    MPI_Send(block, 1 << 18, MPI_BYTE, 0, 2, parent);
    free(block);
    MPI_Comm_free(&merged);
    MPI_Comm_disconnect(&parent);
    MPI_Finalize();
    return total < 2;
}

static void spawn(char* program) {
    enum { kChildren = 2 };
    MPI_Comm children, merged;
    MPI_Comm_spawn(program, MPI_ARGV_NULL, kChildren, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children,
                   MPI_ERRCODES_IGNORE);
    int value = 1000;
    MPI_Bcast(&value, 1, MPI_INT, rank == 0 ? MPI_ROOT : MPI_PROC_NULL, children);
    MPI_Intercomm_merge(children, 0, &merged);
    int one = 1, total = 0;
    MPI_Allreduce(&one, &total, 1, MPI_INT, MPI_SUM, merged);
    CHECK_EQUAL(total, size + kChildren);
    if (rank == 0) {
        int sum = 0;
        MPI_Recv(&sum, 1, MPI_INT, 0, 1, children, MPI_STATUS_IGNORE);
        CHECK_EQUAL(sum, 1000 * kChildren + kChildren * (kChildren - 1) / 2);
        char* block = malloc(1 << 18);
        for (int i = 0; i < kChildren; ++i) {
            MPI_Recv(block, 1 << 18, MPI_BYTE, i, 2, children, MPI_STATUS_IGNORE);
            CHECK(matches(block, 1 << 18, (unsigned)i));
        }
        free(block);
    }
    MPI_Comm_free(&merged);
    MPI_Comm_disconnect(&children);
}

/* Even ranks accept, odd ones connect; then the groups part for good. */
static void meet(void) {
    if (size < 2) return;
    MPI_Comm half, inter;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    char port[MPI_MAX_PORT_NAME] = "";
    if (rank == 0) MPI_Open_port(MPI_INFO_NULL, port);
    MPI_Bcast(port, MPI_MAX_PORT_NAME, MPI_CHAR, 0, MPI_COMM_WORLD);
    if (rank % 2 == 0)
        MPI_Comm_accept(port, MPI_INFO_NULL, 0, half, &inter);
    else
        MPI_Comm_connect(port, MPI_INFO_NULL, 0, half, &inter);
    int half_rank, remote_size, got = -1;
    MPI_Comm_rank(half, &half_rank);
    MPI_Comm_remote_size(inter, &remote_size);
    if (half_rank < remote_size) {
        MPI_Sendrecv(&rank, 1, MPI_INT, half_rank, 3, &got, 1, MPI_INT, half_rank, 3, inter,
                     MPI_STATUS_IGNORE);
        CHECK_EQUAL(got, rank ^ 1);
    }
    MPI_Comm_disconnect(&inter);
    if (rank == 0) MPI_Close_port(port);
    MPI_Comm_free(&half);
}

int main(int argc, char** argv) {
    begin(&argc, &argv);
    MPI_Comm parent;
    MPI_Comm_get_parent(&parent);
    if (parent != MPI_COMM_NULL) return child(parent);
    spawn(argv[0]);
    meet();
    return end("spawn");
}
