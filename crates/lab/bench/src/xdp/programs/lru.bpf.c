// SPDX-License-Identifier: GPL-2.0 OR MIT
/* lru: a balancer whose table of connections is the kernel's LRU hash, as Katran's is: a look-up in
 * it for each packet that begins no connection, then in a ring, and a new entry. It does nothing
 * else: it knows one service, counts nothing, and checks nothing. */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/tcp.h>
#include <bpf/bpf_helpers.h>

#define CONNECTIONS 1048576
#define SLOTS 65537

struct connection {
	__be32 source;
	__be32 destination;
	__be16 ports[2];
	__u32 protocol;
};

struct place {
	__u32 server;
	__u32 reserved;
	__u64 used;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, CONNECTIONS);
	__type(key, struct connection);
	__type(value, struct place);
} table SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SLOTS);
	__type(key, __u32);
	__type(value, __u32);
} ring SEC(".maps");

SEC("xdp")
int lru(struct xdp_md *ctx)
{
	struct ethhdr *eth = (void *)(long)ctx->data;
	struct iphdr *ip = (void *)(eth + 1);
	struct tcphdr *tcp = (void *)(ip + 1);
	struct connection connection = {};
	struct place *place = 0, new = {};
	__u32 slot, *server;

	if ((void *)(tcp + 1) > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	connection.source = ip->saddr;
	connection.destination = ip->daddr;
	connection.ports[0] = tcp->source;
	connection.ports[1] = tcp->dest;
	connection.protocol = ip->protocol;
	if (!tcp->syn)
		place = bpf_map_lookup_elem(&table, &connection);
	if (!place) {
		slot = (ip->saddr ^ tcp->source) * 2654435761u % SLOTS;
		server = bpf_map_lookup_elem(&ring, &slot);
		if (!server)
			return XDP_ABORTED;
		new.server = *server;
		new.used = bpf_ktime_get_ns();
		bpf_map_update_elem(&table, &connection, &new, BPF_ANY);
		place = &new;
	}
	/* The server's MAC address would be looked up by its number. */
	__builtin_memset(eth, 4 + (place->server & 1), 2 * ETH_ALEN);
	return XDP_TX;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
