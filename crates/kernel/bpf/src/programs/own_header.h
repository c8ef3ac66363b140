/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * IP headers of packets that begin here: a tunnel's, and answers.
 *
 * Those of IPv4 say "don't fragment", so that they need no identification (RFC 6864).
 *
 * Non-goals: room for them.
 */
#ifndef OWN_HEADER_H
#define OWN_HEADER_H

#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define OWN_TTL 64
#define DONT_FRAGMENT bpf_htons(0x4000)

/* What a checksum is of whose words have this sum (RFC 1071). */
static __always_inline __u16 folded(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return ~((sum & 0xffff) + (sum >> 16));
}

/* With `bytes` bytes behind it. The addresses are four bytes each. */
static __always_inline void write_ipv4(struct iphdr *ip, __u8 traffic_class, __u8 protocol,
				       __u32 bytes, const void *from, const void *to)
{
	const __u16 *words = (const void *)ip;
	__u32 sum = 0;

	ip->version = 4;
	ip->ihl = 5;
	ip->tos = traffic_class;
	ip->tot_len = bpf_htons(sizeof(*ip) + bytes);
	ip->id = 0;
	ip->frag_off = DONT_FRAGMENT;
	ip->ttl = OWN_TTL;
	ip->protocol = protocol;
	ip->check = 0;
	__builtin_memcpy(&ip->saddr, from, 4);
	__builtin_memcpy(&ip->daddr, to, 4);
#pragma unroll
	for (int i = 0; i < (int)(sizeof(*ip) / 2); i++)
		sum += words[i];
	ip->check = folded(sum);
}

/* The same. The addresses are sixteen bytes each; of `label` 20 bits count. */
static __always_inline void write_ipv6(struct ipv6hdr *ip, __u8 traffic_class, __u32 label,
				       __u8 protocol, __u32 bytes, const void *from, const void *to)
{
	ip->version = 6;
	ip->priority = traffic_class >> 4;
	ip->flow_lbl[0] = traffic_class << 4 | (label >> 16 & 0xf);
	ip->flow_lbl[1] = label >> 8;
	ip->flow_lbl[2] = label;
	ip->payload_len = bpf_htons(bytes);
	ip->nexthdr = protocol;
	ip->hop_limit = OWN_TTL;
	__builtin_memcpy(&ip->saddr, from, 16);
	__builtin_memcpy(&ip->daddr, to, 16);
}

#endif
