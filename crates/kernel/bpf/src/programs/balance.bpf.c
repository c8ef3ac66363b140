// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * balance: sends packets of a service to one of its servers, out of the port where they came in, or
 * out of another; or leaves them to this box, if it is the server.
 *
 * It is behind the filters of a host's port, and in front of the program that hands frames to the
 * box: there goes by a tail call what is of no service, or of a server that is this box.
 *
 * The client's hash leads to a slot of the service's ring, and that to a server. Connections are
 * recorded only where the ring cannot say where they are (crates/core/balance/src/ring.rs); of UDP
 * always, because no packet of it says that a connection is new. An error that ICMP reports goes to
 * the server whose packet it quotes. A packet of QUIC goes where its connection id says, if that
 * names a server (quic.h).
 *
 * The hash of the ring has no secret, so balancers with equal services choose equal servers.
 *
 * Non-goals: VLANs; NAT; whether servers are well.
 */
#include "balance.h"
#include "connections.h"
#include "encapsulate.h"
#include "packet.h"
#include "plane.h"
#include "quic.h"
#include "self.h"
#include "siphash.h"
#include "too_big.h"

#define PROTOCOL_ICMP_ERRORS 8
#define FLAG_SYN bpf_htons(0x0002)
#define FLAG_ACK bpf_htons(0x0010)
#define SYN_OR_ACK (FLAG_SYN | FLAG_ACK)

/* The devices of other ports, by the ports' numbers. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, PORTS_MAX);
	__type(key, __u32);
	__type(value, __u32);
} other_ports SEC(".maps");

/* Whose packet it is. */
struct flow {
	struct service_key service;
	__be64 client[2];
	__be16 client_port;
	__u8 is_new;		/* the first of a connection */
	__u8 is_error;		/* the packet itself is ICMP's */
};

/* Reads the packet that an error quotes, which went from the service to the client. Whether it is
 * one. A global function: the verifier looks at it once. */
__noinline int read_quoted(struct context *ctx, struct flow *flow, __u32 at, __u32 ip)
{
	__be16 *ports;

	if (!ctx || !flow)
		return 0;
	if (ip == 4) {
		struct iphdr *quoted = part(ctx, at, sizeof(*quoted));

		if (!quoted || quoted->version != 4 || quoted->ihl < 5 ||
		    quoted->frag_off & bpf_htons(0x1fff))
			return 0;
		flow->service.protocol = quoted->protocol;
		__builtin_memcpy(flow->service.address, &quoted->saddr, 4);
		__builtin_memcpy(flow->client, &quoted->daddr, 4);
		at += quoted->ihl * 4;
	} else {
		struct ipv6hdr *quoted = part(ctx, at, sizeof(*quoted));

		if (!quoted || quoted->version != 6)
			return 0;
		flow->service.protocol = quoted->nexthdr;
		__builtin_memcpy(flow->service.address, &quoted->saddr, 16);
		__builtin_memcpy(flow->client, &quoted->daddr, 16);
		at += sizeof(*quoted);
	}
	if (flow->service.protocol != PROTOCOL_TCP && flow->service.protocol != PROTOCOL_UDP)
		return 0;
	ports = part(ctx, at, 4);
	if (!ports)
		return 0;
	flow->service.port = ports[0];
	flow->client_port = ports[1];
	return 1;
}

static __always_inline int is_error(const struct packet *packet)
{
	__u8 type = packet->icmp_type;

	if (!(packet->has & PACKET_ICMP))
		return 0;
	/* Destination unreachable (and "fragmentation needed"), time exceeded, parameter problem. */
	if (packet->ip == 4)
		return packet->protocol == PROTOCOL_ICMP && (type == 3 || type == 11 || type == 12);
	return packet->protocol == PROTOCOL_ICMPV6 && type >= 1 && type <= 4;
}

/* Whose packet this is. 0 if it can be of no service. */
static __always_inline int read_flow(struct context *ctx, const struct packet *packet,
				     struct flow *flow)
{
	flow->service.ip = packet->ip;
	if (is_error(packet)) {
		flow->is_error = 1;
		return read_quoted(ctx, flow, packet->transport + PROTOCOL_ICMP_ERRORS, packet->ip);
	}
	if (packet->protocol != PROTOCOL_TCP && packet->protocol != PROTOCOL_UDP)
		return 0;
	flow->service.protocol = packet->protocol;
	__builtin_memcpy(flow->service.address, packet->destination, 16);
	__builtin_memcpy(flow->client, packet->source, 16);
	if (packet->has & PACKET_PORTS) {
		flow->service.port = packet->destination_port;
		flow->client_port = packet->source_port;
	}
	flow->is_new = (packet->tcp_flags & SYN_OR_ACK) == FLAG_SYN;
	return packet->has & (PACKET_PORTS | PACKET_FRAGMENT);
}

/* The service that the packet is for. */
static __always_inline struct service *service_for(struct flow *flow)
{
	struct service_key key = flow->service;
	struct service *service = bpf_map_lookup_elem(&services, &key);

	if (service)
		return service;
	key.port = 0;
	return bpf_map_lookup_elem(&services, &key);
}

static __always_inline __u64 ring_hash(const struct service *service, const struct flow *flow)
{
	struct siphash sip = sip_begin(0, 0);
	__u64 words = 2;

	sip_add(&sip, flow->client[0] & service->mask[0]);
	if (flow->service.ip == 6) {
		sip_add(&sip, flow->client[1] & service->mask[1]);
		words = 3;
	}
	sip_add(&sip, service->flags & HASHES_PORT ? bpf_ntohs(flow->client_port) : 0);
	return sip_end(&sip, words);
}

/* Only where it is needed: it takes as long as what a ring needs. */
static __noinline __u64 connection_hash(const struct service *service, const struct flow *flow)
{
	struct siphash sip = sip_begin(connections_key[0], connections_key[1]);
	/* Connections of one client are one, where servers take turns. */
	int is_client = service->flags & PERSISTS && service->flags & BY_TURNS;

	sip_add(&sip, is_client ? flow->client[0] & service->mask[0] : flow->client[0]);
	sip_add(&sip, is_client ? flow->client[1] & service->mask[1] : flow->client[1]);
	sip_add(&sip, (__u64)service->number << 32 |
			      (is_client ? 0 : (__u64)flow->client_port << 16 | flow->service.port));
	return sip_end(&sip, 3);
}

/* Which server a packet goes to. */
struct choice {
	__u32 server;
	__u32 is_new;		/* whether it begins a connection */
	__u32 fate;
	__u64 hash;		/* of the connection; 0 if nobody has needed it */
};

/* A server that exists, or 0. */
static __always_inline __u32 living(__u32 server, __u32 service)
{
	return server_of(server, service) ? server : 0;
}

/* A global function: the verifier looks at it once. */
__noinline int choose(const struct service *service, const struct flow *flow, struct choice *choice)
{
	__u32 slot, at, server, number, takes_turns, records, is_tcp;
	struct balanced *counted;

	if (!service || !flow || !choice)
		return 0;
	number = service->number;
	takes_turns = service->flags & BY_TURNS;
	is_tcp = flow->service.protocol == PROTOCOL_TCP;
	choice->fate = NO_SERVER;
	if (!service->slots)
		return 0;
	records = !(service->flags & ONE_PACKET) && (takes_turns || !is_tcp);
	if (records)
		choice->hash = connection_hash(service, flow);
	/* A connection that begins is at no server yet, but its client may be. */
	if (records && (!is_tcp || !flow->is_new || service->flags & PERSISTS)) {
		server = living(recorded(choice->hash, time_now(), service->silence), number);
		if (server) {
			choice->server = server;
			return 0;
		}
		if (flow->is_error || (is_tcp && !flow->is_new && !(service->flags & PERSISTS))) {
			choice->fate = UNRECORDED;
			if (takes_turns)
				return 0;
		}
	}
	if (takes_turns) {
		counted = bpf_map_lookup_elem(&service_counts, &number);
		if (!counted)
			return 0;
		at = counted->turns % service->slots;
		counted->turns = at + 1;
	} else {
		at = (ring_hash(service, flow) >> 32) * service->slots >> 32;
	}
	slot = slot_of(number, at);
	server = NOW(slot);
	choice->is_new = takes_turns || !is_tcp || flow->is_new;
	if (!takes_turns && is_tcp && RECORDS(slot)) {
		records = 1;
		choice->hash = connection_hash(service, flow);
		if (!flow->is_new) {
			server = living(recorded(choice->hash, time_now(), TIME_MASK), number);
			if (server) {
				choice->server = server;
				return 0;
			}
			/* From before the slot moved. */
			server = living(BEFORE(slot), number);
			if (!server)
				server = NOW(slot);
		}
	}
	server = living(server, number);
	if (flow->is_error)
		choice->is_new = 0;
	else if (records && server)
		put_record(choice->hash, time_now(), server, service->silence);
	choice->server = server;
	return 0;
}

/* Takes one from TTL or hop limit. 0 if none is left. */
static __always_inline int lower_ttl(struct context *ctx, __u32 at, __u8 ip)
{
	if (ip == 4) {
		struct iphdr *header = part(ctx, at, sizeof(*header));
		__u32 sum;

		if (!header || header->ttl <= 1)
			return 0;
		header->ttl--;
		/* The TTL is the upper half of a word. What the word loses, the checksum gains. */
		sum = header->check + bpf_htons(0x0100);
		header->check = sum + (sum >= 0xffff);
	} else {
		struct ipv6hdr *header = part(ctx, at, sizeof(*header));

		if (!header || header->hop_limit <= 1)
			return 0;
		header->hop_limit--;
	}
	return 1;
}

/* The IP packet's bytes. Of a frame in several buffers only the first is within reach. */
static __always_inline __u32 ip_bytes(struct context *ctx, const struct packet *packet)
{
	__u32 within = packet->end - packet->network, said = 0;

	if (!multi_buffer)
		return within;
	if (packet->ip == 4) {
		struct iphdr *header = part(ctx, packet->network, sizeof(*header));

		said = header ? bpf_ntohs(header->tot_len) : 0;
	} else {
		struct ipv6hdr *header = part(ctx, packet->network, sizeof(*header));

		said = header ? bpf_ntohs(header->payload_len) + sizeof(*header) : 0;
	}
	return max(within, said);
}

static __always_inline void count_balanced(__u32 service, const struct choice *choice, __u64 bytes)
{
	__u32 server = choice->server;
	struct balanced *of_service = bpf_map_lookup_elem(&service_counts, &service);
	struct balanced *of_server = bpf_map_lookup_elem(&server_counts, &server);

	if (!of_service || !of_server)
		return;
	of_service->connections += choice->is_new;
	of_service->packets++;
	of_service->bytes += bytes;
	of_server->connections += choice->is_new;
	of_server->packets++;
	of_server->bytes += bytes;
}

/* Writes what a packet needs to reach its server. What becomes of it. */
static __always_inline __u32 forward(struct context *ctx, const struct server *server,
				     const struct packet *packet, const struct choice *choice)
{
	__u32 outer = outer_bytes(server), bytes = ip_bytes(ctx, packet);
	struct ethhdr *eth;

	if (server->way != WAY_OUT)
		return server->way == WAY_LOCAL ? LOCAL : NO_WAY;
	if (bytes + outer > server->mtu)
		return answer_too_big(ctx, packet, bytes, server->mtu - outer);
	if (!lower_ttl(ctx, packet->network, packet->ip))
		return EXPIRED;
	if (outer && bpf_xdp_adjust_head(ctx, -(int)outer))
		return NO_HEADROOM;
	eth = data_of(ctx);
	if ((void *)(eth + 1) > data_end_of(ctx))
		return NO_HEADROOM;
	__builtin_memcpy(eth, server->macs, sizeof(server->macs));
	if (outer &&
	    !encapsulate(ctx, server, packet->ip, packet->traffic_class, bytes, choice->hash))
		return NO_HEADROOM;
	if (server->leaves == arrives_at)
		return BALANCED;
	return bpf_redirect_map(&other_ports, server->leaves, XDP_DROP) == XDP_REDIRECT ? REDIRECTED :
											  PORT_GONE;
}

/* Whether a packet of QUIC goes by its connection id. Then it begins no connection, and is not
 * recorded. */
static __always_inline int goes_by_id(struct context *ctx, const struct packet *packet,
				      const struct service *service, const struct flow *flow,
				      struct choice *choice, __u64 whole)
{
	if (flow->is_error || packet->has & PACKET_FRAGMENT)
		return 0;
	choice->server = living(named_server(ctx, packet, service), service->number);
	count_at(arrives_at, choice->server ? BY_ID : NOT_BY_ID, whole);
	if (choice->server)
		choice->hash = connection_hash(service, flow);
	return choice->server != 0;
}

/* What becomes of the frame. */
static __always_inline __u32 balanced(struct context *ctx, __u64 whole)
{
	struct packet packet = {};
	struct flow flow = {};
	struct choice choice = {};
	struct service *service;
	struct server *server;
	struct ethhdr *eth = data_of(ctx);
	__u32 fate;

	if ((void *)(eth + 1) > data_end_of(ctx) || !is_to_own_mac(eth))
		return ELSEWHERE;
	read_packet(ctx, &packet, 1);
	/* What is in a VLAN is that device's. */
	if (!packet.ip || packet.network != sizeof(*eth) || !read_flow(ctx, &packet, &flow))
		return ELSEWHERE;
	service = service_for(&flow);
	/* A fragment has no ports here: it can be of a service for all ports, where the client's
	 * address leads. */
	if (packet.has & PACKET_FRAGMENT && (!service || service->flags & HASHES_PORT))
		return FRAGMENT;
	if (!service)
		return ELSEWHERE;
	if (!QUIC_FORMAT(service->flags) || !goes_by_id(ctx, &packet, service, &flow, &choice, whole))
		choose(service, &flow, &choice);
	server = server_of(choice.server, service->number);
	if (!server)
		return choice.fate;
	/* By it servers behind a tunnel spread connections over queues. */
	if (!choice.hash && server->forward != BY_ROUTE)
		choice.hash = connection_hash(service, &flow);
	fate = forward(ctx, server, &packet, &choice);
	if (fate == REDIRECTED)
		count_at(server->leaves, FROM_OTHERS, whole);
	if (fate == BALANCED || fate == REDIRECTED || fate == LOCAL)
		count_balanced(service->number, &choice, whole);
	return fate;
}

SEC(HOOK)
int balance(struct context *ctx)
{
	__u64 bytes = size_of(ctx).bytes;
	__u32 fate = balanced(ctx, bytes);

	count_fate(fate, bytes);
	if (fate <= ANSWERED)
		return XDP_TX;
	if (fate == REDIRECTED)
		return XDP_REDIRECT;
	if (fate > UNRECORDED)
		return DROPPED;
	bpf_tail_call(ctx, &plane, 0);
	/* There is always one behind it. */
	return TO_BOX;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
