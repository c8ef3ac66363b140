// SPDX-License-Identifier: GPL-2.0 OR MIT
/* connect: lets live frames go to a service, each as the packet of another connection: first those
 * that begin them. */
#include "connection.h"
#define LIVE
#include "checksum.h"
#include "out.h"

/* How many connections there are. */
const volatile __u64 connections = 1;
/* The first so many packets begin one: of all in turn, or of any, if they are more. */
const volatile __u64 begin = 0;
/* The frame's MAC addresses, to and from: the first byte the lowest. */
const volatile __u64 to = 0;
const volatile __u64 from = 0;

/* One thread sends, so a plain variable is enough. */
__u64 number;

SEC("xdp")
int connect(struct xdp_md *ctx)
{
	struct ethhdr *eth = (void *)(long)ctx->data;
	struct iphdr *ip = (void *)(eth + 1);
	struct tcphdr *tcp = (void *)(ip + 1);
	__u64 at = number++;
	/* Where each begins several times, losses hit others each time. */
	int is_drawn = at < begin && begin > connections;

	if ((void *)(tcp + 1) > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	/* A page keeps what a balancer made of its frame the last time: a tunnel's header, too. */
#pragma unroll
	for (int i = 0; i < ETH_ALEN; i++) {
		eth->h_dest[i] = to >> (8 * i);
		eth->h_source[i] = from >> (8 * i);
	}
	eth->h_proto = bpf_htons(ETH_P_IP);
	set_connection(ip, tcp,
		       is_drawn ? bpf_get_prandom_u32() % connections : flow_of(at, connections),
		       at < begin);
	set_checksum(ip);
	return go_on();
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
