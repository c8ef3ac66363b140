// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * no_long_pings: a user's own program in front of a host's port (`--front`). It drops what is ICMP
 * in IPv4 and longer than a small ping.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define LONG 1000

SEC("xdp.frags")
int no_long_pings(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;
	struct iphdr *ip = (void *)(eth + 1);

	if ((void *)(ip + 1) > end || eth->h_proto != bpf_htons(ETH_P_IP))
		return XDP_PASS;
	return ip->protocol == IPPROTO_ICMP && bpf_ntohs(ip->tot_len) > LONG ? XDP_DROP : XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
