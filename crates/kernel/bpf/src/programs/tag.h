/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The outermost VLAN tag of a frame (IEEE 802.1Q): beside the packet, or in it.
 */
#ifndef TAG_H
#define TAG_H

#include "frame.h"
#include "vlan.h"

/* Where a tag in the frame is, or null if the frame ends before; whether there is one, its type
 * says. */
static __always_inline struct tag *tag_within(struct context *ctx)
{
	struct tag *tag = data_of(ctx) + 2 * ETH_ALEN;

	return (void *)(tag + 1) > data_end_of(ctx) ? 0 : tag;
}

/* The outermost tag. Without one, its type is another protocol's, or 0. */
static __always_inline struct tag outermost_tag(struct context *ctx)
{
	struct tag tag = {}, *within;

	tag.control = tag_beside(ctx, &tag.type);
	if (!tag.type) {
		within = tag_within(ctx);
		if (within)
			tag = *within;
	}
	return tag;
}

#endif
