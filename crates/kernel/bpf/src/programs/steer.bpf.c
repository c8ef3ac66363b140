// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * steer: decides, in the driver, who gets a frame.
 *
 * Frames for the box itself go up the stack, if it has an address there; all others go to the AF_XDP socket of the
 * queue on which they arrive. If no socket serves that queue the kernel gets the frame, so with
 * a bridge behind it nothing is lost while Narrows starts, stops or has died.
 *
 * If the worker of the queue is silent for too long, the frame goes to the kernel, too, or is
 * dropped, as configured.
 *
 * Non-goals: shaping, and any other dropping.
 */
#include "steer.h"

SEC("xdp")
int steer(struct xdp_md *ctx)
{
	return decide(ctx);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
