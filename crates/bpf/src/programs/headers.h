/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The headers that a filter asks for: bits of a packet's words, and ranges of ports.
 *
 * src/headers.rs says the same in Rust.
 */
#ifndef HEADERS_H
#define HEADERS_H

#include "packet.h"

struct headers {
	/* Bits of the packet's words, and their required values. */
	__u64 values[PACKET_WORDS];
	__u64 masks[PACKET_WORDS];
	/* The first and the last, in host order; unused if the last is 0. */
	__u16 source_ports[2];
	__u16 destination_ports[2];
};

static __always_inline int is_within(__be16 port, const volatile __u16 *range)
{
	__u16 number = bpf_ntohs(port);

	return range[0] <= number && number <= range[1];
}

static __always_inline int has_headers(const struct packet *packet,
				       const volatile struct headers *headers)
{
#pragma unroll
	for (int i = 0; i < PACKET_WORDS; i++)
		if (headers->masks[i] && (packet->words[i] & headers->masks[i]) != headers->values[i])
			return 0;
	if (headers->source_ports[1] && !is_within(packet->source_port, headers->source_ports))
		return 0;
	return !headers->destination_ports[1] ||
	       is_within(packet->destination_port, headers->destination_ports);
}

#endif
