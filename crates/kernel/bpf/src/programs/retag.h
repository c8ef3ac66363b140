/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Ports that are VLANs of one device: a frame leaves through the device where it arrived, with the
 * tag of the other VLAN. The tag's priority and drop eligibility stay, and so do tags within.
 *
 * This comes last: at tcx, pointers into the packet are void afterwards.
 */
#ifndef RETAG_H
#define RETAG_H

#include "tag.h"

/* The other VLAN's tag, in network order; 0 where frames leave through another device, as they
 * are. Set before the program is loaded. */
const volatile __be16 other_protocol = 0;
const volatile __be16 other_vid = 0;

static __always_inline __be16 other_control(__be16 control)
{
	return (control & ~bpf_htons(VID_MASK)) | other_vid;
}

#ifndef TCX

/* Drops a frame that has no room for a tag: it is of no VLAN. */
static __always_inline int retag(struct xdp_md *ctx)
{
	struct tag *tag = tag_within(ctx);

	if (!tag)
		return XDP_DROP;
	tag->type = other_protocol;
	tag->control = other_control(tag->control);
	return XDP_TX;
}

#else

/* Drops a frame whose tag the kernel cannot replace: there is no memory. */
static __always_inline int retag(struct __sk_buff *ctx)
{
	__be16 control = other_control(outermost_tag(ctx).control);

	if (bpf_skb_vlan_pop(ctx) || bpf_skb_vlan_push(ctx, other_protocol, bpf_ntohs(control)))
		return TC_ACT_SHOT;
	return bpf_redirect(ctx->ifindex, 0);
}

#endif

#endif
