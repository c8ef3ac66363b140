// SPDX-License-Identifier: GPL-2.0 OR MIT
/* empty_tcx: the cost of any program at tcx. */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

SEC("tc")
int empty_tcx(struct __sk_buff *ctx)
{
	return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
