// SPDX-License-Identifier: GPL-2.0 OR MIT
/* send_back: the least that sends a frame to another host: other MAC addresses. */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_helpers.h>

SEC("xdp")
int send_back(struct xdp_md *ctx)
{
	struct ethhdr *eth = (void *)(long)ctx->data;

	if ((void *)(eth + 1) > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	__builtin_memset(eth, 4, 2 * ETH_ALEN);
	return XDP_TX;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
