/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* What a frame takes of a link, as in crates/core/units/src/wire.rs. */
#ifndef OVERHEAD_H
#define OVERHEAD_H

#include "segments.h"

/* How a link divides frames. */
#define WHOLE 0
#define ATM 1
#define PTM 2

/* The bytes that are charged for a packet: `per_frame` for each frame, and `least` at least. Frames
 * of a merged packet count as equally long. */
static __always_inline __s64 charge_of(struct size size, __s32 per_frame, __u16 minimum,
				       __u16 framing)
{
	__s64 cost = (__s64)size.bytes + (__s64)per_frame * size.packets;
	__s64 least = (__s64)minimum * size.packets;

	if (cost < least)
		cost = least;
	if (framing) {
		__u64 packets = size.packets, frame = ((__u64)cost + packets - 1) / packets;

		if (framing == ATM)
			return (frame + 47) / 48 * 53 * packets;
		return cost + (frame + 63) / 64 * packets;
	}
	return cost;
}

#endif
