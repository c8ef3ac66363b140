/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* The checksum of an IPv4 header without options (RFC 1071). */
#ifndef CHECKSUM_H
#define CHECKSUM_H

#include <linux/ip.h>
#include <bpf/bpf_helpers.h>

static __always_inline void set_checksum(struct iphdr *ip)
{
	__u16 *words = (void *)ip;
	__u32 sum = 0;

	ip->check = 0;
#pragma unroll
	for (int i = 0; i < 10; i++)
		sum += words[i];
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	ip->check = ~sum;
}

#endif
