//! Packets of QUIC go where their connection ids say, whatever their client's address is.

use super::*;
use narrows_balance::QuicFormat;

const QUIC_PORT: u16 = 443;

/// The id of the server 10.0.0.N.
fn id_of(server: u8) -> u128 {
    u128::from(server) * 0x0101
}

/// A service with so many servers, each with an id.
fn quic(format: &str, servers: u8) -> Bench {
    let server = |number: u8| {
        let id = id_of(number);
        format!("-a -u 192.0.2.1:443 -r 10.0.0.{number} -i --quic-id {id}\n")
    };
    let servers: String = (1..=servers).map(server).collect();
    Bench::new(&format!("-A -u 192.0.2.1:443 -s mh --quic {format}\n{servers}"))
}

fn datagram(from: u16, payload: &[u8]) -> Vec<u8> {
    let mut udp: Vec<u8> = [from, QUIC_PORT].iter().flat_map(|port| port.to_be_bytes()).collect();
    udp.extend((8 + payload.len() as u16).to_be_bytes());
    udp.extend([0, 0]);
    udp.extend(payload);
    frame(&ip(client(from), service(), UDP, &udp))
}

/// A connection id of `format` with the server's `id`.
fn connection_id(format: QuicFormat, id: u128) -> Vec<u8> {
    let mut bytes = match format {
        QuicFormat::Lb(octets) => {
            [&[0x40 | octets], &id.to_be_bytes()[16 - usize::from(octets)..]].concat()
        }
        QuicFormat::Katran if id <= 0xffff => {
            let id = id as u16;
            vec![0x40 | (id >> 10) as u8, (id >> 2) as u8, (id << 6) as u8 | 5]
        }
        QuicFormat::Katran => [&[0xc0][..], &(id as u32).to_be_bytes()].concat(),
    };
    bytes.extend([7; 8]);
    bytes
}

fn short(id: &[u8]) -> Vec<u8> {
    [&[0x5f], id, &[1; 20]].concat()
}

fn long(first: u8, version: u32, id: &[u8]) -> Vec<u8> {
    let lengths = [&[id.len() as u8], id, &[4, 9, 9, 9, 9]].concat();
    [&[first], &version.to_be_bytes()[..], &lengths, &[1; 20]].concat()
}

const FORMATS: [QuicFormat; 5] = [
    QuicFormat::Lb(2),
    QuicFormat::Lb(8),
    QuicFormat::Lb(9),
    QuicFormat::Lb(15),
    QuicFormat::Katran,
];

#[test]
fn a_packet_goes_to_the_server_that_its_id_names_from_any_address() {
    for format in FORMATS {
        let bench = quic(&format.to_string(), 5);
        for server in 1..=5 {
            let id = connection_id(format, id_of(server));
            for from in 1..20 {
                for payload in [short(&id), long(0xe0, 1, &id), long(0xf0, 0x6b33_43cf, &id)] {
                    let goes = bench.goes(&datagram(from, &payload));
                    assert_eq!(goes, Some(IpAddr::from([10, 0, 0, server])), "{format}");
                }
            }
        }
        let counted = bench.tables.fates(PortId::FIRST).unwrap();
        assert_eq!((counted.by_id().packets, counted.not_by_id().packets), (5 * 19 * 3, 0));
        let figures = bench.tables.figures().unwrap();
        assert_eq!(figures.services[&0].connections, 0, "none of them begins one");
    }
}

#[test]
fn a_packet_that_begins_a_connection_and_one_with_an_unknown_id_goes_as_the_ring_says() {
    let bench = quic("lb:2", 7);
    let known = connection_id(QuicFormat::Lb(2), id_of(3));
    let unknown = connection_id(QuicFormat::Lb(2), 0x7777);
    let mut unroutable = known.clone();
    unroutable[0] |= 0xe0;
    let payloads = [
        long(0xc0, 1, &known),
        long(0xd0, 1, &known),
        long(0xd0, 0x6b33_43cf, &known),
        long(0xe0, 0x6b33_43cf, &known),
        long(0xe0, 1, &unknown),
        long(0xe0, 1, &known[..2]),
        short(&unknown),
        short(&unroutable),
        Vec::new(),
    ];
    for from in 0..50 {
        let due = expected(&bench, client(from), 0, false);
        for payload in &payloads {
            assert_eq!(bench.goes(&datagram(from, payload)), Some(due), "{payload:x?}");
        }
    }
    let counted = bench.tables.fates(PortId::FIRST).unwrap();
    assert_eq!(counted.by_id().packets, 0);
    assert_eq!(counted.not_by_id().packets, 50 * payloads.len() as u64);
}

#[test]
fn a_server_that_drains_keeps_its_ids_and_one_that_is_down_or_gone_does_not() {
    let mut bench = quic("katran", 3);
    let third = address("10.0.0.3");
    let packet = datagram(1, &short(&connection_id(QuicFormat::Katran, id_of(3))));
    let at = "-u 192.0.2.1:443 -r 10.0.0.3";
    for (command, is_there) in [
        ("list".to_owned(), true),
        (format!("edit {at} -w 0"), true),
        (format!("edit {at} --down"), false),
        (format!("edit {at} --up"), true),
        (format!("edit {at} --quic-id none"), false),
        (format!("edit {at} --quic-id {}", id_of(3)), true),
        (format!("del {at}"), false),
        (format!("add {at} -i --quic-id {}", id_of(3)), true),
        ("edit -u 192.0.2.1:443 --quic lb:2".to_owned(), false),
        ("edit -u 192.0.2.1:443 --quic katran".to_owned(), true),
        (format!("edit {at} -w 0"), true),
        ("edit -u 192.0.2.1:443 --quic none".to_owned(), false),
    ] {
        bench.run(&command);
        // By the ring it goes elsewhere, or it is recorded there.
        let is_by_ring = bench.goes(&datagram(1, &[])) == Some(third);
        assert_eq!(bench.goes(&packet) == Some(third), is_there || is_by_ring, "{command}");
    }
}

#[test]
fn another_process_goes_on_with_the_same_ids_and_counts() {
    let bench = quic("lb:3", 4);
    bench.send(&datagram(1, &short(&connection_id(QuicFormat::Lb(3), id_of(2)))));
    let descriptors = bench.tables.descriptors().unwrap();
    let mut tables =
        BalanceTables::inherit(&descriptors, bench.tables.key(), &bench.services).unwrap();
    assert_eq!(tables.figures().unwrap(), bench.tables.figures().unwrap());
    assert_eq!(tables.figures().unwrap().servers[&2].packets, 1, "at once");
    assert_eq!(tables.named, bench.tables.named);
    let mut services = bench.services.clone();
    let words = "del -u 192.0.2.1:443 -r 10.0.0.2".split(' ').map(str::to_owned);
    services.run(&words.collect::<Vec<_>>(), &Seen::default, NOW);
    tables.follow(&services, &bench.ways).unwrap();
    assert_eq!(named_in(&tables.quic_ids).unwrap(), tables.named);
    assert_eq!(tables.named.len(), 3);
}

/// An oracle: the server's id in a datagram, read by the words of the RFCs and the draft.
fn id_in(format: QuicFormat, payload: &[u8]) -> Option<u128> {
    let first = *payload.first()?;
    let id = if first & 0x80 == 0 {
        &payload[1..]
    } else {
        let version = u32::from_be_bytes(payload.get(1..5)?.try_into().ok()?);
        let begins = match (version, first >> 4 & 3) {
            (0x6b33_43cf, kind) => [1, 2].contains(&kind),
            (_, kind) => [0, 1].contains(&kind),
        };
        let length = usize::from(*payload.get(5)?);
        let behind = &payload[6..];
        if begins {
            return None;
        }
        &behind[..length.min(behind.len())]
    };
    let number = |bytes: &[u8]| bytes.iter().fold(0, |sum, byte| sum << 8 | u128::from(*byte));
    match format {
        QuicFormat::Lb(_) if id.first()? >> 5 == 7 => None,
        QuicFormat::Lb(octets) => Some(number(id.get(1..=usize::from(octets))?)),
        QuicFormat::Katran => match id.first()? >> 6 {
            1 => Some(number(id.get(..3)?) >> 6 & 0xffff),
            2 => Some(number(id.get(1..4)?)),
            3 => Some(number(id.get(1..5)?)),
            _ => None,
        },
    }
}

/// Datagrams that often have an id.
fn datagrams() -> impl Strategy<Value = Vec<u8>> {
    let format = prop::sample::select(FORMATS.to_vec());
    let of_id = (format, 1..8_u8, any::<u8>(), any::<[u8; 2]>(), 0..60_usize);
    let shaped = of_id.prop_map(|(format, server, first, [how, cut], length)| {
        let mut id = connection_id(format, id_of(server));
        if how & 3 == 0 {
            id[0] ^= cut;
        }
        let version = [1, 0x6b33_43cf, 0xface_b002][usize::from(how) % 3];
        let mut payload = if first & 0x80 == 0 { short(&id) } else { long(first, version, &id) };
        if how & 12 == 12 {
            payload.truncate(length);
        }
        if how & 48 == 48 && payload.len() > 5 {
            payload[5] = cut % 24;
        }
        payload
    });
    prop_oneof![3 => shaped, 1 => prop::collection::vec(any::<u8>(), 0..40)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn any_datagram_goes_where_a_naive_parser_says(
        format in prop::sample::select(FORMATS.to_vec()),
        payloads in prop::collection::vec(datagrams(), 1..80),
    ) {
        let bench = quic(&format.to_string(), 5);
        for (from, payload) in (0..).zip(payloads) {
            let named = (1..=5).find(|server| id_in(format, &payload) == Some(id_of(*server)));
            let due = match named {
                Some(server) => IpAddr::from([10, 0, 0, server]),
                None => expected(&bench, client(from), 0, false),
            };
            let goes = bench.goes(&datagram(from, &payload));
            prop_assert_eq!(goes, Some(due), "{} {:x?}", format, payload);
        }
    }
}
