// SPDX-License-Identifier: GPL-2.0 OR MIT
/* flows: makes of each frame the packet of another connection to the service, and has the program
 * under test run on it. It also undoes what a balancer does to a frame. */
#include "connection.h"
#include "subject.h"

/* How many connections there are. */
const volatile __u64 connections = 1;
/* Whether each packet begins one. */
const volatile __u64 are_new = 0;

SEC("xdp")
int flows(struct xdp_md *ctx)
{
	struct ethhdr *eth = (void *)(long)ctx->data;
	struct iphdr *ip = (void *)(eth + 1);
	struct tcphdr *tcp = (void *)(ip + 1);
	__u32 zero = 0;
	__u32 *number = bpf_map_lookup_elem(&next, &zero);

	if (!number || (void *)(tcp + 1) > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	__builtin_memset(eth->h_dest, 2, ETH_ALEN);
	set_connection(ip, tcp, flow_of((*number)++, connections), !!are_new);
	bpf_tail_call(ctx, &subject, 0);
	return XDP_ABORTED;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
