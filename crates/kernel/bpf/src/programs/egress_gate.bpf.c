// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * egress_gate: what a filter of clsact calls at a port's egress, where the kernel has no tcx.
 *
 * It continues in the program behind it, or has the filters behind decide. A filter stays when its
 * process ends; the kernel empties the array when no process has it open any more, and then this
 * does nothing.
 */
#include <linux/pkt_cls.h>
#include "behind.h"

SEC("tc")
int narrows_egress(struct __sk_buff *ctx)
{
	bpf_tail_call(ctx, &behind, 0);
	return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
