// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * dispatcher: calls up to ten programs in a row, in the format of libxdp's dispatchers, version 2
 * (lib/libxdp/protocol.org of xdp-tools).
 *
 * For libxdp before 1.5.5 on kernels that let only a function which may move packet data be
 * replaced by one that may. To them a tail call may, and the empty functions of these versions may
 * not, so no gate takes their place. Here they may. Libxdp fills in the configuration, replaces
 * the functions, and does everything else.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define PLACES 10
/* What an empty function returns; every program is configured to be followed by the next then. */
#define NOT_REPLACED 31

/* Libxdp writes it as one piece, before the program is loaded. */
static const volatile struct {
	__u8 magic;
	__u8 version;
	__u8 programs;
	__u8 has_frags;
	__u32 goes_on_after[PLACES];
	__u32 priorities[PLACES];
	__u32 flags[PLACES];
} configuration;

/* The call changes nothing: it says that packet data may be moved. */
#define EMPTY(name)                                                \
	__attribute__((noinline)) int name(struct xdp_md *ctx)     \
	{                                                          \
		volatile int action = NOT_REPLACED;                \
                                                                   \
		if (!ctx)                                          \
			return XDP_ABORTED;                        \
		bpf_xdp_adjust_tail(ctx, 0);                       \
		return action;                                     \
	}

EMPTY(prog0)
EMPTY(prog1)
EMPTY(prog2)
EMPTY(prog3)
EMPTY(prog4)
EMPTY(prog5)
EMPTY(prog6)
EMPTY(prog7)
EMPTY(prog8)
EMPTY(prog9)
/* Libxdp replaces it to find out what the kernel can do. */
EMPTY(compat_test)

#define CALL(place)                                                              \
	if (configuration.programs <= place)                                     \
		return XDP_PASS;                                                 \
	action = prog##place(ctx);                                               \
	if (!(configuration.goes_on_after[place] & (1U << (action & 31))))       \
		return action;

SEC("xdp")
int xdp_dispatcher(struct xdp_md *ctx)
{
	int action;

	CALL(0)
	CALL(1)
	CALL(2)
	CALL(3)
	CALL(4)
	CALL(5)
	CALL(6)
	CALL(7)
	CALL(8)
	CALL(9)
	if (configuration.programs > PLACES)
		return compat_test(ctx);
	return XDP_PASS;
}

/* Libxdp loads it to find out what the kernel can do. */
SEC("xdp")
int xdp_pass(struct xdp_md *ctx)
{
	return XDP_PASS;
}

__uint(dispatcher_version, 2) SEC("xdp_metadata");
char LICENSE[] SEC("license") = "Dual MIT/GPL";
