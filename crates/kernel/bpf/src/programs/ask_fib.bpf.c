// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * ask_fib: the kernel's look-up of a route, for a self-check. It runs in test runs only: the frame
 * is an Ethernet header and the question, which the answer replaces. It returns what the look-up
 * returns.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_helpers.h>

SEC("xdp")
int ask_fib(struct xdp_md *ctx)
{
	struct bpf_fib_lookup *question = (void *)(long)ctx->data + sizeof(struct ethhdr), own;
	long said;

	if ((void *)(question + 1) > (void *)(long)ctx->data_end)
		return -1;
	__builtin_memcpy(&own, question, sizeof(own));
	said = bpf_fib_lookup(ctx, &own, sizeof(own), 0);
	__builtin_memcpy(question, &own, sizeof(own));
	return said;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
