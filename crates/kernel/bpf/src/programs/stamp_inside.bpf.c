// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * stamp_inside: as stamp, and finds out which hosts are behind network address translation, for
 * classes that share their rate among those (inside.h). It needs the kernel's connection tracking,
 * so it is a program of its own.
 */
#define BEFORE_NAT
#include "stamp.h"

SEC("tc")
int stamp_inside(struct __sk_buff *ctx)
{
	return stamp_packet(ctx);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
