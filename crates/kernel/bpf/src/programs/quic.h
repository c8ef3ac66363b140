/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Which server the destination connection id of a QUIC packet names.
 *
 * Where that id is, all versions of QUIC have in common (RFC 8999). A short header does not say how
 * long it is. What begins a connection carries an id that the client has chosen: an Initial, and
 * 0-RTT. Their types are version 2's (RFC 9369) or those of version 1 (RFC 9000), which all other
 * versions are taken to have, as Katran does.
 *
 * The ids' formats: crates/core/balance/src/quic.rs.
 *
 * Non-goals: all else of QUIC; several packets in one datagram, which have the same id.
 */
#ifndef QUIC_H
#define QUIC_H

#include "balance.h"
#include "packet.h"

#define UDP_BYTES 8
#define LONG_HEADER 0x80
#define VERSION_2 bpf_htonl(0x6b3343cf)
/* The most octets of a server's id. */
#define ID_OCTETS_MAX 15
/* The configuration of QUIC-LB whose ids name no server. */
#define NO_CONFIGURATION 7

struct long_header {
	__u8 first;
	__u8 version[4];
	__u8 id_bytes;
} __attribute__((packed));

/* A server's id in connection ids of a service. */
struct quic_key {
	__u64 id[2];		/* a number of 128 bits, its upper half first */
	__u32 service;
	__u32 reserved;
};

/* The numbers of servers. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SERVERS_MAX);
	__type(key, struct quic_key);
	__type(value, __u32);
} quic_ids SEC(".maps");

/* Whether the client has chosen the id of a packet with a long header. */
static __always_inline int begins(const struct long_header *header)
{
	__u8 type = header->first >> 4 & 3;
	__be32 version;

	__builtin_memcpy(&version, header->version, 4);
	return version == VERSION_2 ? type == 1 || type == 2 : type <= 1;
}

/* Reads the server's id of `octets` octets from `at` on. 0 if the packet ends before. */
static __always_inline int read_id(struct context *ctx, const struct packet *packet, __u32 at,
				   __u32 octets, struct quic_key *key)
{
	for (__u32 i = 0; i < ID_OCTETS_MAX; i++) {
		__u8 *octet;

		if (i >= octets)
			break;
		octet = part_of(ctx, packet, at + i, 1);
		if (!octet)
			return 0;
		key->id[0] = key->id[0] << 8 | key->id[1] >> 56;
		key->id[1] = key->id[1] << 8 | *octet;
	}
	return 1;
}

/* The number of the server that the id of a packet of `service` names; 0 if it names none. The
 * packet has ports. A global function, which few packets need: the verifier looks at it once. */
__noinline int named_server(struct context *ctx, const struct packet *packet,
			    const struct service *service)
{
	__u32 at, id_bytes = 255, format, octets, *number;
	struct quic_key key = {};
	__u8 *first;

	if (!ctx || !packet || !service)
		return 0;
	key.service = service->number;
	format = QUIC_FORMAT(service->flags);
	at = packet->transport + UDP_BYTES;
	first = part_of(ctx, packet, at, 1);
	if (!first)
		return 0;
	if (*first & LONG_HEADER) {
		struct long_header *header = part_of(ctx, packet, at, sizeof(*header));

		if (!header || begins(header))
			return 0;
		id_bytes = header->id_bytes;
		at += sizeof(*header);
	} else {
		at++;
	}
	first = part_of(ctx, packet, at, 1);
	if (!first)
		return 0;
	octets = format;
	if (format == QUIC_KATRAN) {
		__u8 version = *first >> 6;

		if (!version)
			return 0;
		octets = version + 1;
	} else if (*first >> 5 == NO_CONFIGURATION) {
		return 0;
	}
	if (octets + 1 > id_bytes)
		return 0;
	if (format == QUIC_KATRAN && octets == 2) {
		/* Behind two bits of version are 16 of the id. */
		if (!read_id(ctx, packet, at, 3, &key))
			return 0;
		key.id[1] = key.id[1] >> 6 & 0xffff;
	} else if (!read_id(ctx, packet, at + 1, octets, &key)) {
		return 0;
	}
	number = bpf_map_lookup_elem(&quic_ids, &key);
	return number ? *number : 0;
}

#endif
