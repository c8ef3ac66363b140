/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Tells what a tree has sent from what the kernel sends by itself.
 *
 * At tcx a tree's redirect goes through the egress hook of the device where the packet leaves, as
 * all that the kernel sends there does. It has been charged already. So the tree puts a seal into
 * the packet's control block, which the redirect leaves as it is, and `tree_slow_path` lets it
 * pass. The kernel's IP layer overwrites the block of what it forwards itself, in part with
 * addresses from the packet's options. Nobody outside knows the seal, which is two words of which
 * options could be at most one.
 */
#ifndef SEAL_H
#define SEAL_H

#include "frame.h"

/* Chosen before the program is loaded; 0 where nothing is charged at egress. */
const volatile __u32 slow_path_seal = 0;

#ifndef TCX

/* What leaves by XDP does not pass the hook. */
static __always_inline void put_seal(struct xdp_md *ctx)
{
}

#else

static __always_inline void put_seal(struct __sk_buff *ctx)
{
	__u32 seal = slow_path_seal;

	if (seal) {
		ctx->cb[0] = seal;
		ctx->cb[1] = ~seal;
	}
}

/* Whether the packet has the seal; takes it off, so that it holds for one egress only. */
static __always_inline int take_seal(struct __sk_buff *ctx)
{
	__u32 seal = slow_path_seal;

	if (!seal || ctx->cb[0] != seal || ctx->cb[1] != ~seal)
		return 0;
	ctx->cb[0] = 0;
	ctx->cb[1] = 0;
	return 1;
}

#endif

#endif
