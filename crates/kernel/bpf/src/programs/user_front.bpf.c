// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * user_front: calls a user's own XDP program before all others of a port, and counts its verdicts.
 *
 * A function calls it by a tail call, which replaces that function, not the program: so the verdict
 * comes back here. What it passes continues to the port's own programs by another tail call; its
 * other verdicts are final.
 *
 * Non-goals: several such programs, which libxdp's dispatcher has.
 */
#include "plane.h"
#include "segments.h"

/* Behind the last verdict of XDP, which the kernel treats as XDP_ABORTED. */
#define INVALID (XDP_REDIRECT + 1)

struct verdict {
	__u64 packets;
	__u64 bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, INVALID + 1);
	__type(key, __u32);
	__type(value, struct verdict);
} verdicts SEC(".maps");

/* The user's program. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} users SEC(".maps");

/* Its verdict. A global function: of what such a one returns the verifier assumes nothing. */
__noinline int ask_user(struct xdp_md *ctx)
{
	if (!ctx)
		return XDP_ABORTED;
	bpf_tail_call(ctx, &users, 0);
	return XDP_PASS;
}

SEC("xdp")
int user_front(struct xdp_md *ctx)
{
	/* As it arrived: the program may change it. */
	__u32 bytes = size_of(ctx).bytes;
	__u32 verdict = ask_user(ctx);
	struct verdict *counts;
	__u32 counted;

	/* The compiler takes what the function returns by itself for all that comes back. */
	asm volatile("" : "+r"(verdict));
	counted = verdict < INVALID ? verdict : INVALID;
	counts = bpf_map_lookup_elem(&verdicts, &counted);
	/* A slot belongs to one CPU, so plain additions are enough. */
	if (counts) {
		counts->packets++;
		counts->bytes += bytes;
	}
	if (verdict == XDP_PASS)
		bpf_tail_call(ctx, &plane, 0);
	return verdict;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
