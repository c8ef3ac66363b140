// SPDX-License-Identifier: GPL-2.0 OR MIT
/* towards: lets live frames of IPv4 or IPv6 go through a router, each to another destination. */
#include <linux/if_ether.h>
#include <linux/in6.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_endian.h>
#define LIVE
#include "checksum.h"
#include "out.h"

#define ADDRESSES_MAX 131072
#define HOPS 64

/* The MAC address of the router, its first byte the lowest. */
const volatile __u64 router = 0;
/* How many destinations there are. */
const volatile __u64 listed = 1;

/* One of IPv4 is in the first bytes. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ADDRESSES_MAX);
	__type(key, __u32);
	__type(value, struct in6_addr);
} addresses SEC(".maps");

/* One thread sends, so a plain variable is enough. */
__u32 number;

static __always_inline int towards4(struct iphdr *ip, const struct in6_addr *to)
{
	ip->daddr = to->in6_u.u6_addr32[0];
	ip->ttl = HOPS;
	set_checksum(ip);
	return go_on();
}

SEC("xdp")
int towards(struct xdp_md *ctx)
{
	void *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = (void *)(long)ctx->data;
	struct iphdr *ip = (void *)(eth + 1);
	struct ipv6hdr *ip6 = (void *)(eth + 1);
	__u32 at = number++ % listed;
	struct in6_addr *to;

	to = bpf_map_lookup_elem(&addresses, &at);
	if (!to || (void *)(ip + 1) > end)
		return XDP_ABORTED;
	/* A page keeps what its frame was the last time: so, what a router made of it. */
#pragma unroll
	for (int i = 0; i < ETH_ALEN; i++)
		eth->h_dest[i] = router >> (8 * i);
	if (eth->h_proto == bpf_htons(ETH_P_IP))
		return towards4(ip, to);
	if ((void *)(ip6 + 1) > end)
		return XDP_ABORTED;
	ip6->daddr = *to;
	ip6->hop_limit = HOPS;
	return go_on();
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
