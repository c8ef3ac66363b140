/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What the filters in front read of a frame: its Ethernet and IP addresses, and its
 * ports. Headers are read as crates/packet/src/dissect does, but for MPLS and PPPoE:
 * what is behind those is no IP here.
 */
#ifndef PACKET_H
#define PACKET_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* As many VLAN tags, and IPv6 extension headers, are looked through. */
#define TAGS_MAX 4
#define EXTENSIONS_MAX 4

struct packet {
	/* IPv4 in the first four bytes, the rest zeros. In network order. */
	__u8 source[16];
	__u8 destination[16];
	__u8 source_mac[8];
	__u8 destination_mac[8];
	__be16 source_port;
	__be16 destination_port;
	__u8 ip;		/* 4, 6, or 0 for none */
	__u8 protocol;
	__be16 ether_type;	/* behind all tags; 0 where it is a length */
	__u32 bytes;		/* of the whole frame */
};

static __always_inline void read_ports(struct packet *packet, void *at, void *data_end)
{
	__be16 *ports = at;
	__u8 protocol = packet->protocol;

	/* TCP, UDP, DCCP, SCTP, UDP-Lite */
	if (protocol != 6 && protocol != 17 && protocol != 33 && protocol != 132 &&
	    protocol != 136)
		return;
	if ((void *)(ports + 2) > data_end)
		return;
	packet->source_port = ports[0];
	packet->destination_port = ports[1];
}

static __always_inline void read_v4(struct packet *packet, void *at, void *data_end,
				    int with_ports)
{
	struct iphdr *ip = at;

	if ((void *)(ip + 1) > data_end || ip->version != 4 || ip->ihl < 5)
		return;
	packet->ip = 4;
	packet->protocol = ip->protocol;
	__builtin_memcpy(packet->source, &ip->saddr, 4);
	__builtin_memcpy(packet->destination, &ip->daddr, 4);
	if (with_ports && !(ip->frag_off & bpf_htons(0x3fff)))
		read_ports(packet, at + ip->ihl * 4, data_end);
}

static __always_inline void read_v6(struct packet *packet, void *at, void *data_end,
				    int with_ports)
{
	struct ipv6hdr *ip = at;

	if ((void *)(ip + 1) > data_end || ip->version != 6)
		return;
	packet->ip = 6;
	packet->protocol = ip->nexthdr;
	__builtin_memcpy(packet->source, &ip->saddr, 16);
	__builtin_memcpy(packet->destination, &ip->daddr, 16);
	if (!with_ports)
		return;
	at += sizeof(*ip);
#pragma unroll
	for (int i = 0; i < EXTENSIONS_MAX; i++) {
		__u8 *extension = at;
		__u8 kind = packet->protocol;

		if (kind != 0 && kind != 43 && kind != 60 && kind != 135 && kind != 44)
			break;
		if ((void *)(extension + 8) > data_end)
			return;
		packet->protocol = extension[0];
		/* What follows a fragment's header is whole in one of them only. */
		if (kind == 44)
			return;
		at += (extension[1] + 1) * 8;
	}
	read_ports(packet, at, data_end);
}

/* Reads the headers of the frame, which has an Ethernet header at least. */
static __always_inline void read_packet(struct packet *packet, void *data, void *data_end,
					int with_ports)
{
	struct ethhdr *eth = data;
	__u16 at = sizeof(*eth);
	__be16 ether_type;

	if ((void *)(eth + 1) > data_end)
		return;
	__builtin_memcpy(packet->source_mac, eth->h_source, ETH_ALEN);
	__builtin_memcpy(packet->destination_mac, eth->h_dest, ETH_ALEN);
	ether_type = eth->h_proto;
#pragma unroll
	for (int i = 0; i < TAGS_MAX; i++) {
		if (ether_type != bpf_htons(ETH_P_8021Q) && ether_type != bpf_htons(ETH_P_8021AD) &&
		    ether_type != bpf_htons(ETH_P_QINQ1))
			break;
		if (data + at + 4 > data_end)
			break;
		ether_type = *(__be16 *)(data + at + 2);
		at += 4;
	}
	packet->ether_type = bpf_ntohs(ether_type) < ETH_P_802_3_MIN ? 0 : ether_type;
	if (ether_type == bpf_htons(ETH_P_IP))
		read_v4(packet, data + at, data_end, with_ports);
	else if (ether_type == bpf_htons(ETH_P_IPV6))
		read_v6(packet, data + at, data_end, with_ports);
}

#endif
