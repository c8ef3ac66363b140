/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Whether a frame is addressed to the box itself: then its kernel gets it. A bump in the wire has
 * no address on the networks that it joins, unless its operator gave it one: else frames to the
 * port's own address go where all others go.
 *
 * Where it has an address, these are for it: frames to the port's MAC address and to that of the
 * bridge above it, and questions for one of its IP addresses (ARP, RFC 826; neighbour
 * solicitations, RFC 4861, 4.3), which are sent to many. Only the one with the address answers, so
 * nobody beyond the other port misses a question, and the kernel's bridge floods it anyway.
 */
#ifndef SELF_H
#define SELF_H

#include <linux/if_ether.h>
#include <linux/if_vlan.h>
#include <bpf/bpf_endian.h>

/* The port's own address, set before the program is loaded. */
const volatile __u8 own_mac[ETH_ALEN] = { 2, 0, 0, 0, 0, 1 };
/* That of the bridge above it; where there is none, the port's own. */
const volatile __u8 bridge_mac[ETH_ALEN] = { 2, 0, 0, 0, 0, 1 };
/* Whether the box has an address there. */
const volatile __u8 is_addressed = 1;

#define OWN_IPS_MAX 8

/* The addresses for which questions go to the box, the first four bytes 0 beside IPv4. */
const volatile __u32 own_ips[OWN_IPS_MAX][4];
const volatile __u32 own_ips_count;

#define ARP_REQUEST 1
#define NEIGHBOUR_SOLICITATION 135

/* A question for an IPv4 address (RFC 826). */
struct arp_question {
	__be16 hardware, protocol;
	__u8 hardware_length, protocol_length;
	__be16 operation;
	__u8 sender[ETH_ALEN + 4];
	__u8 target_mac[ETH_ALEN];
	__be32 target;
} __attribute__((packed));

/* A question for an IPv6 address, behind no extension headers (RFC 4861: their hop limit is 255, and none has any). */
struct neighbour_question {
	__u8 before[6];
	__u8 next_header;
	__u8 hop_limit;
	__u8 addresses[32];
	__u8 type, code;
	__be16 checksum;
	__be32 reserved;
	__be32 target[4];
} __attribute__((packed));

static __always_inline int is_mac(const struct ethhdr *eth, const volatile __u8 *mac)
{
	__u8 differs = 0;

#pragma unroll
	for (int i = 0; i < ETH_ALEN; i++)
		differs |= eth->h_dest[i] ^ mac[i];
	return !differs;
}

static __always_inline int is_to_own_mac(const struct ethhdr *eth)
{
	return is_mac(eth, own_mac);
}

static __always_inline int is_own_ip(__u32 a, __u32 b, __u32 c, __u32 d)
{
	for (int i = 0; i < OWN_IPS_MAX; i++) {
		if (i >= own_ips_count)
			break;
		if (!((own_ips[i][0] ^ a) | (own_ips[i][1] ^ b) | (own_ips[i][2] ^ c) | (own_ips[i][3] ^ d)))
			return 1;
	}
	return 0;
}

/* Whether it asks who has an address of the box, behind at most one tag. */
static __always_inline int asks_for_self(const struct ethhdr *eth, const void *data_end)
{
	const void *network = eth + 1;
	__be16 protocol = eth->h_proto;

	if (!(eth->h_dest[0] & 1))
		return 0;
	if (protocol == bpf_htons(ETH_P_8021Q)) {
		const struct {
			__be16 tci, protocol;
		} *tag = network;

		if ((const void *)(tag + 1) > data_end)
			return 0;
		protocol = tag->protocol;
		network = tag + 1;
	}
	if (protocol == bpf_htons(ETH_P_ARP)) {
		const struct arp_question *arp = network;

		return (const void *)(arp + 1) <= data_end && arp->operation == bpf_htons(ARP_REQUEST) &&
		       is_own_ip(0, 0, 0, arp->target);
	}
	if (protocol == bpf_htons(ETH_P_IPV6)) {
		const struct neighbour_question *ask = network;

		return (const void *)(ask + 1) <= data_end && ask->next_header == 58 &&
		       ask->type == NEIGHBOUR_SOLICITATION &&
		       is_own_ip(ask->target[0], ask->target[1], ask->target[2], ask->target[3]);
	}
	return 0;
}

static __always_inline int is_for_self(const struct ethhdr *eth, const void *data_end)
{
	if (!is_addressed)
		return 0;
	return is_to_own_mac(eth) || is_mac(eth, bridge_mac) || asks_for_self(eth, data_end);
}

#endif
