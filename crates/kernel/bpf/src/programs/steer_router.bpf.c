// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * steer_router: routes a frame as the kernel would, and hands it to the worker of its queue
 * (steer_choose.h). What is not routed here goes to the kernel as it arrived (route.h).
 *
 * Non-goals: shaping; drops other than a blackhole's, and those of a silent worker.
 */
#include "route.h"
#include "steer_choose.h"

SEC("xdp")
int steer_router(struct xdp_md *ctx)
{
	return steer_chosen(ctx);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
