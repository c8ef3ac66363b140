/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Hands a frame that leaves through some port to the worker of its queue, with the port's number
 * in front of it.
 *
 * Included behind what decides about the port: `find_way`, `take_way` and LEAVES. What it sends
 * through no port goes to the kernel as it arrived. So do all frames of a queue that no socket
 * serves, or whose worker is silent, unless those are to be dropped: then the ones that would have
 * left are. So this box stays reachable through it.
 */
#ifndef STEER_CHOOSE_H
#define STEER_CHOOSE_H

#include "outcomes.h"
#include "steer.h"

/* Proves to user space that the bytes in front of a frame are ours; chosen before the program is
 * loaded. */
const volatile __u32 seal = 1;

/* Tells the port's number from a translation, which has the same seal. */
#define PORT_SEAL 0x706f7274

/* What lies in front of a frame. */
struct leaves {
#ifdef TELLS_ROUTE
	struct taken taken;
#endif
	__u32 port;
	__u32 seal;
};

/* Writes the number of the port in front of the frame, and what filters may ask of the route, in the
 * place of what another program wrote there. Returns 0 where the driver gives no room. */
static __always_inline int tell_way(struct xdp_md *ctx, const struct way *way)
{
	int others = ctx->data - ctx->data_meta;
	struct leaves *leaves;

	if (bpf_xdp_adjust_meta(ctx, others - (int)sizeof(*leaves)))
		return 0;
	leaves = (void *)(long)ctx->data_meta;
	if ((void *)(leaves + 1) > data_of(ctx))
		return 0;
#ifdef TELLS_ROUTE
	leaves->taken = way->taken;
#endif
	leaves->port = way->port;
	leaves->seal = seal ^ PORT_SEAL;
	return 1;
}

static __always_inline int pass(__u32 verdict)
{
	count(verdict);
	return XDP_PASS;
}

static __always_inline int steer_chosen(struct xdp_md *ctx)
{
	int is_silent = is_stalled(ctx->rx_queue_index), outcome;
	struct way way = {};

	if (is_silent && stalled_action == XDP_PASS)
		return pass(STALLED);
	/* At once, so that the socket cannot go once the frame is another one. It takes effect only
	 * by the verdict. */
	if (!is_silent &&
	    bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_PASS) != XDP_REDIRECT)
		return pass(UNSERVED);
	outcome = find_way(ctx, &way);
	if (outcome == LEAVES && is_silent) {
		count(STALLED);
		return stalled_action;
	}
	/* What is in front of the frame moves with its beginning. */
	if (outcome == LEAVES && !(tell_way(ctx, &way) && take_way(ctx, &way)))
		outcome = NO_ROOM;
	count_outcome(outcome, 1);
	if (outcome == LEAVES) {
		count(TO_WORKER);
		return XDP_REDIRECT;
	}
	if (outcome == BLACKHOLE)
		return XDP_DROP;
	return pass(TO_SELF);
}

#endif
