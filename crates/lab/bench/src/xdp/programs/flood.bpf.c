// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * flood: lets live frames go at their rate, each with another source, and withholds all others.
 *
 * They go in bursts, as a NIC hands on what has come since its last interrupt.
 */
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <bpf/bpf_endian.h>
#define LIVE
#include "checksum.h"
#include "out.h"

#define ADDRESSES_MAX 131072
/* What is late by more is left out, so that no flood of bursts follows a stall. */
#define MEMORY_NS 20000000

/* Nanoseconds from one burst to the next; 0 for as many as a core sends. */
const volatile __u64 interval = 0;
/* Frames of a burst. */
const volatile __u64 burst = 1;
/* How many addresses there are; 0 to invent one for each frame. */
const volatile __u64 listed = 0;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ADDRESSES_MAX);
	__type(key, __u32);
	__type(value, __be32);
} addresses SEC(".maps");

/* One thread sends, so plain variables are enough. */
__u64 last;
__u32 left, number;

/* An address between 84.0.0.0 and 87.255.255.255: another one for each of 2^26 numbers in a row. */
static __always_inline __be32 invented(__u32 number)
{
	return bpf_htonl(0x54000000 + (number * 0x9e3779b1 & 0x03ffffff));
}

static __always_inline int is_due(void)
{
	__u64 now;

	if (!interval)
		return 1;
	if (!left) {
		now = bpf_ktime_get_ns();
		if (now - last < interval)
			return 0;
		last = now - last > interval + MEMORY_NS ? now : last + interval;
		left = burst;
	}
	left--;
	return 1;
}

SEC("xdp")
int flood(struct xdp_md *ctx)
{
	struct iphdr *ip = (void *)(long)ctx->data + sizeof(struct ethhdr);
	__u32 at;
	__be32 *listed_one, address;

	if ((void *)(ip + 1) > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	if (!is_due())
		return XDP_DROP;
	at = number++;
	if (listed) {
		at %= listed;
		listed_one = bpf_map_lookup_elem(&addresses, &at);
		if (!listed_one)
			return XDP_ABORTED;
		address = *listed_one;
	} else {
		address = invented(at);
	}
	ip->saddr = address;
	set_checksum(ip);
	return go_on();
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
