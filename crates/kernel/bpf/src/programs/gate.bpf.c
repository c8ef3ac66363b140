// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * gate: the program that libxdp's dispatcher calls, among those of others.
 *
 * It continues in whatever program is behind it, or lets the frame pass to the next program of
 * the dispatcher. The kernel empties the array when no process has it open any more: then all
 * frames pass, even if another process has pinned this program.
 *
 * Non-goals: its place among the others, which libxdp knows.
 */
#include "behind.h"

SEC("xdp")
int narrows_gate(struct xdp_md *ctx)
{
	bpf_tail_call(ctx, &behind, 0);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
