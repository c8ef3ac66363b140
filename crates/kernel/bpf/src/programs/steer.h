/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The steering decision that `steer` and `steer_translated` share.
 *
 * Each is an object of its own, because a kernel that lacks a function that one
 * of them calls refuses the whole object: `steer` needs only XDP and AF_XDP from the kernel, so
 * it always loads. Both use the same maps, which `steer` creates and `steer_translated`
 * receives; both receive the heartbeats.
 */
#ifndef STEER_H
#define STEER_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "heartbeat.h"
#include "self.h"

enum verdict {
	TO_WORKER,	/* redirected to the socket of its queue */
	TO_SELF,	/* addressed to this box */
	UNSERVED,	/* no socket on its queue */
	STALLED,	/* the worker of its queue is silent */
	VERDICTS,
};

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, QUEUES_MAX);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, VERDICTS);
	__type(key, __u32);
	__type(value, __u64);
} verdicts SEC(".maps");

static __always_inline void count(__u32 verdict)
{
	__u64 *frames = bpf_map_lookup_elem(&verdicts, &verdict);

	/* Never null, but the verifier wants to see it asked. A slot belongs to
	 * one CPU, so a plain increment is enough. */
	if (frames)
		*frames += 1;
}

static __always_inline int decide(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;
	int has_address = (void *)(eth + 1) <= data_end;
	int action;

	if (has_address && is_for_self(eth, data_end)) {
		count(TO_SELF);
		return XDP_PASS;
	}
	if (is_stalled(ctx->rx_queue_index)) {
		count(STALLED);
		action = stalled_action;
	} else {
		action = bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_PASS);
		if (action == XDP_REDIRECT) {
			count(TO_WORKER);
			return action;
		}
		count(UNSERVED);
	}
	/* Passing it to the bridge would pass it to the box. */
	if (has_address && is_to_own_mac(eth))
		return XDP_DROP;
	return action;
}

#endif
