/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Makes of a frame the packet of one of many TCP connections. */
#ifndef CONNECTION_H
#define CONNECTION_H

#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/tcp.h>
#include <bpf/bpf_endian.h>

#define HOPS 64

/* A packet of the connection `flow`, below 2^30; `is_new` the first one. */
static __always_inline void set_connection(struct iphdr *ip, struct tcphdr *tcp, __u32 flow,
					   int is_new)
{
	ip->ttl = HOPS;
	ip->saddr = bpf_htonl(0x0a000000 + (flow >> 6));
	tcp->source = bpf_htons(1024 + (flow & 63));
	tcp->syn = is_new;
	tcp->ack = !is_new;
}

/* Not one after the other: a packet's neighbours in time are no neighbours in a table. */
static __always_inline __u32 flow_of(__u64 number, __u64 connections)
{
	return number * 2654435761u % connections;
}

#endif
