// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * steer_switch: forwards a frame as the kernel's bridge would, and hands it to the worker of its
 * queue (steer_choose.h). What is not forwarded here goes to the bridge as it arrived (switch.h).
 *
 * Non-goals: shaping; drops other than those of a silent worker.
 */
#include "switch.h"
#include "steer_choose.h"

SEC("xdp")
int steer_switch(struct xdp_md *ctx)
{
	return steer_chosen(ctx);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
