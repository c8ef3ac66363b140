// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * tree_maps: the maps of `tree`, for what is at egress only.
 *
 * The kernel takes longer to check `tree` than for all else that a start does. Where only programs at
 * egress work on its maps, no frame would ever reach it. Its place is taken by programs that let all
 * pass.
 */
#define TCX
#include <linux/pkt_cls.h>
#include "behind_host.h"
#include "handed.h"
#include "other_port.h"
#include "terms.h"
#include "tree.h"

SEC("tc")
int tree(struct __sk_buff *ctx)
{
	return TC_ACT_UNSPEC;
}

SEC("tc")
int tree_behind(struct __sk_buff *ctx)
{
	return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
