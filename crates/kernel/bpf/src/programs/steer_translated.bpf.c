// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * steer_translated: decides like `steer`, and also tells user space what a frame's
 * addresses were before translation. It replaces `steer` only while a qdisc needs it, and only
 * on kernels with the look-up.
 */
#include "steer.h"
#include "translation.h"

SEC("xdp")
int steer_translated(struct xdp_md *ctx)
{
	int action = decide(ctx);

	if (action == XDP_REDIRECT)
		tell_translation(ctx);
	return action;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
