// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * stamp: gives what this host sends through a port its departure times (stamp.h). Hosts are those in
 * the packets' headers.
 */
#include "stamp.h"

SEC("tc")
int stamp(struct __sk_buff *ctx)
{
	return stamp_packet(ctx);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
