// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * closed_ports: an XDP program for `narrows run --port PORT --front closed_ports.o`. It drops what
 * comes to the TCP and UDP ports in its map, and counts there how often. All else it passes: then
 * the filters of Narrows decide.
 *
 * It reads IPv4 without VLAN tags; fragments but the first have no port, and pass.
 *
 * Build: make -C examples/front (README.md).
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define FRAGMENT_OFFSET 0x1fff

/* By the port, in host order: how many packets were dropped. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u16);
	__type(value, __u64);
} closed_ports SEC(".maps");

/* The ports of TCP and UDP, which begin alike. */
struct ports {
	__be16 source;
	__be16 destination;
};

/* "xdp.frags" as the headers are in the first buffer, however many there are: so it runs at any
 * MTU. */
SEC("xdp.frags")
int drop_closed(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;
	struct iphdr *ip = (void *)(eth + 1);
	struct ports *ports;
	__u64 *dropped;
	__u16 port;

	if ((void *)(ip + 1) > end || eth->h_proto != bpf_htons(ETH_P_IP))
		return XDP_PASS;
	if (ip->protocol != IPPROTO_TCP && ip->protocol != IPPROTO_UDP)
		return XDP_PASS;
	if (ip->ihl < 5 || ip->frag_off & bpf_htons(FRAGMENT_OFFSET))
		return XDP_PASS;
	ports = (void *)ip + ip->ihl * 4;
	if ((void *)(ports + 1) > end)
		return XDP_PASS;
	port = bpf_ntohs(ports->destination);
	dropped = bpf_map_lookup_elem(&closed_ports, &port);
	if (!dropped)
		return XDP_PASS;
	__sync_fetch_and_add(dropped, 1);
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
