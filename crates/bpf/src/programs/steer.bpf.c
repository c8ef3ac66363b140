// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * steer: decides, in the driver, who gets a frame.
 *
 * Frames for the box itself go up the stack as ever; all others go to the
 * AF_XDP socket that serves the queue on which they came in. Where no socket
 * serves that queue the kernel gets the frame, so that with a bridge behind it
 * nothing is lost while Narrows starts, stops or has died.
 *
 * Where the worker of the queue has been silent for too long the kernel gets the
 * frame, too, or nobody, as the operator wants it.
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
