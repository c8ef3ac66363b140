/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Puts another tag on a frame, or takes its tag away.
 *
 * Pointers into the packet are void afterwards. What lies in front of the frame moves along.
 *
 * Non-goals: tags further in.
 */
#ifndef PUT_TAG_H
#define PUT_TAG_H

#include "tag.h"

/* What a tag adds to a frame, in bytes. */
#define TAG_BYTES ((int)sizeof(struct tag))

#ifndef TCX

/* Makes `tag` the outermost tag of a frame that has one, or has none; with the type 0, the frame
 * has none afterwards. `tag` is then what was there: done twice, it changes nothing. Returns 0 if
 * it cannot be done, for lack of room or memory. */
static __always_inline int put_tag(struct xdp_md *ctx, int is_tagged, struct tag *tag)
{
	struct tag was = {}, *within = tag_within(ctx);
	__u8 addresses[2 * ETH_ALEN];

	if (!is_tagged && !tag->type)
		return 1;
	if (!within)
		return 0;
	if (is_tagged)
		was = *within;
	if (!is_tagged || !tag->type) {
		__builtin_memcpy(addresses, data_of(ctx), sizeof(addresses));
		if (bpf_xdp_adjust_head(ctx, is_tagged ? TAG_BYTES : -TAG_BYTES))
			return 0;
		within = tag_within(ctx);
		if (!within)
			return 0;
		__builtin_memcpy(data_of(ctx), addresses, sizeof(addresses));
	}
	if (tag->type)
		*within = *tag;
	*tag = was;
	return 1;
}

#else

/* The kernel has a place for one tag beside the packet. Once that is free, the next one fits. */
static __always_inline int put_tag(struct __sk_buff *ctx, int is_tagged, struct tag *tag)
{
	struct tag was = {};

	if (is_tagged) {
		was = outermost_tag(ctx);
		if (bpf_skb_vlan_pop(ctx))
			return 0;
	}
	if (tag->type && bpf_skb_vlan_push(ctx, tag->type, bpf_ntohs(tag->control)))
		return 0;
	*tag = was;
	return 1;
}

#endif

#endif
