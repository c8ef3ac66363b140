// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * vlans: tells the ports of a device apart, each of which is a VLAN on it, in the driver, or
 * (vlans_tcx) at tcx.
 *
 * The outermost tag says which port's a frame is. The frame continues to what is first at that
 * port by a tail call. Others go to the kernel: without a tag, of another VLAN, or too short
 * for one.
 *
 * Which VLAN is which port is a constant: one byte for each VLAN, so that a frame costs one load
 * from a known place, of a cache line that no CPU writes. A map would cost more, and no port
 * changes its tag.
 *
 * Non-goals: inner tags, and other tags for frames that leave.
 */
#include "segments.h"
#include "tag.h"

#define PORTS_MAX 64

/* By the protocol, 802.1Q and 802.1ad, and the VLAN: the place of its port, counted from 1; 0 for
 * none. Set before the program is loaded. */
const volatile __u8 places[2][VIDS];

/* What is first at each port. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, PORTS_MAX);
	__type(key, __u32);
	__type(value, __u32);
} ports SEC(".maps");

/* The frames that are no port's. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} others SEC(".maps");

static __always_inline __u32 place_of(struct tag tag)
{
	__u32 vid = bpf_ntohs(tag.control);

	/* The compiler would mask before it swaps the bytes, and to the verifier of Linux 6.12 and
	 * older a swapped number can be any. */
	asm volatile("" : "+r"(vid));
	vid &= VID_MASK;
	if (tag.type == bpf_htons(ETH_P_8021Q))
		return places[0][vid];
	if (tag.type == bpf_htons(ETH_P_8021AD))
		return places[1][vid];
	return 0;
}

SEC(HOOK)
int vlans(struct context *ctx)
{
	__u32 zero = 0, place;
	__u64 *other;

	reach_headers(ctx);
	place = place_of(outermost_tag(ctx));
	if (place)
		bpf_tail_call(ctx, &ports, place - 1);
	other = bpf_map_lookup_elem(&others, &zero);
	/* A slot belongs to one CPU, so a plain addition is enough. */
	if (other)
		*other += size_of(ctx).packets;
	return TO_BOX;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
