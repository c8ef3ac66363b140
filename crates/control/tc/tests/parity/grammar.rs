//! Filter lines from a random grammar, the same in every run: spellings, orders, numbers and
//! selectors as people and programs write them, right and wrong.

/// Numerical Recipes' generator: its quality does not matter.
struct Random(u32);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 8) as usize % bound
    }

    fn one_in(&mut self, number: usize) -> bool {
        self.below(number) == 0
    }

    fn pick<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len())]
    }

    /// One of `good`, or seldom one of `bad`.
    fn mostly<'a>(&mut self, good: &[&'a str], bad: &[&'a str]) -> &'a str {
        if self.one_in(12) { self.pick(bad) } else { self.pick(good) }
    }

    /// `word`, or a beginning of it.
    fn spelled(&mut self, word: &str) -> String {
        if self.one_in(2) { word.to_owned() } else { word[..1 + self.below(word.len())].to_owned() }
    }

    fn number(&mut self) -> &'static str {
        let bad = [
            "08",
            "256",
            "0xffff",
            "65536",
            "4294967295",
            "4294967296",
            "-1",
            "+5",
            "x",
            "0x",
            "5x",
        ];
        self.mostly(&["0", "1", "5", "0x10", "010", "255", "0xff"], &bad)
    }

    fn mask(&mut self) -> &'static str {
        self.mostly(
            &["0", "f", "ff", "0xff", "0xf0"],
            &["ffff", "0xffff", "ffffffff", "0xfffffffff", "z"],
        )
    }

    fn place(&mut self) -> String {
        let good = ["0", "4", "12", "0x10", "020", "-8"];
        let offset = self.mostly(&good, &["1", "2", "-14", "x", "nexthdr+", ""]);
        let from = if self.one_in(3) { "nexthdr+" } else { "" };
        format!("at {from}{offset}")
    }

    fn selector(&mut self) -> String {
        let bad = [
            "1.2.3.4/33",
            "10.0.0.0/255.0.255.0",
            "1.2.3.4.5",
            "256.1.1.1",
            "1::/129",
            "10.1.",
            "/8",
        ];
        let four = [
            "10.0.0.0/8",
            "10.1.2.3",
            "any",
            "default",
            "10.0.0.0/255.0.0.0",
            "10/255.255",
            "0x0a.1",
            "0/0",
            "1.2.3.4/0x10",
        ];
        let v4 = self.mostly(&four, &bad);
        let v6 = self.mostly(&["::1", "fe80::/10", "1::/33", "1::/64", "any", "::/0"], &bad);
        let (value, mask) = (self.number(), self.mask());
        let place = if self.one_in(3) { self.place() } else { String::new() };
        let numbers = format!("{value} {mask} {place}");
        match self.below(9) {
            0 => format!("{} {numbers}", self.pick(&["u32", "u16", "u8"])),
            1 => format!("ip {} {v4}", self.pick(&["src", "dst"])),
            2 => format!("ip6 {} {v6}", self.pick(&["src", "dst"])),
            3 => format!(
                "ip {} {numbers}",
                self.pick(&[
                    "tos",
                    "dsfield",
                    "dsf",
                    "precedence",
                    "p",
                    "protocol",
                    "prot",
                    "ihl",
                    "sport",
                    "dport",
                    "icmp_type",
                    "icmp_code",
                ])
            ),
            4 => format!("ip {}", self.pick(&["nofrag", "firstfrag", "df", "mf", "frag"])),
            5 => format!(
                "ip6 {} {numbers}",
                self.mostly(&["protocol", "flowlabel", "sport", "dport", "icmp_type"], &["hop"])
            ),
            6 => format!("ip6 priority {value} {mask}"),
            7 => format!(
                "{} {} {numbers}",
                self.pick(&["tcp", "udp", "icmp"]),
                self.pick(&["src", "dst", "type", "code"])
            ),
            _ => format!(
                "ether {} {}",
                self.pick(&["src", "dst"]),
                self.pick(&["1:2:3:4:5:6", "02:00:00:00:00:01", "1:2"])
            ),
        }
    }

    /// The words before the kind, with or without those that make it a filter of `dev`.
    fn head(&mut self) -> String {
        let mut words = vec!["dev nrwv0".to_owned(), "parent 1:".to_owned()];
        let protocol = self.mostly(
            &[
                "ip", "ipv6", "all", "802.1Q", "802.1AD", "arp", "0x800", "2048", "lldp", "loop",
                "802_2", "ppp_ses", "econet", "9999",
            ],
            &["70000", "igmp", "0x"],
        );
        words.push(format!("{} {protocol}", self.spelled("protocol")));
        let pref = self.mostly(&["1", "5", "0x10", "010", "0", "65535"], &["65536", "x"]);
        let name = self.pick(&["pref", "prio", "priority", "preference"]);
        words.push(format!("{} {pref}", self.spelled(name)));
        if self.one_in(8) {
            words.push(
                self.pick(&[
                    "root",
                    "parent 1:",
                    "prio 3",
                    "dev nrwv0",
                    "protocol ip",
                    "handle 800::5",
                    "handle 5",
                    "chain 0",
                    "c 0",
                    "parent none",
                ])
                .to_owned(),
            );
        }
        for at in (1..words.len()).rev() {
            words.swap(at, self.below(at + 1));
        }
        words.join(" ")
    }

    fn class(&mut self) -> String {
        let name = self.pick(&["classid", "flowid"]);
        format!("{} {}", self.spelled(name), self.mostly(&["1:1"], &["x"]))
    }
}

/// Filters of `u32`, which the kernel has wherever these tests run.
pub fn of_u32(count: usize) -> Vec<String> {
    let mut random = Random(2_463_534_242);
    let line = |_| {
        let mut words: Vec<String> = (0..1 + random.below(3))
            .map(|_| format!("{} {}", random.spelled("match"), random.selector()))
            .collect();
        words.push(random.class());
        if random.one_in(10) {
            let more =
                ["order 7", "order x", "ht 800:", "ht 800::", "ht 800", "skip_hw", "foo", "ht 7:"];
            words.push(random.pick(&more).to_owned());
        }
        let at = random.below(words.len());
        let last = words.len() - 1;
        words.swap(at, last);
        format!("filter add {} u32 {}", random.head(), words.join(" "))
    };
    (0..count).map(line).collect()
}

/// Filters of kinds that the kernel may lack, so that only `tc`'s own reading is compared.
pub fn of_others(count: usize) -> Vec<String> {
    let mut random = Random(88_675_123);
    let keys = [
        "ip_proto",
        "ip_tos",
        "ip_ttl",
        "dst_ip",
        "src_ip",
        "dst_port",
        "src_port",
        "tcp_flags",
        "type",
        "code",
        "dst_mac",
        "src_mac",
        "ip_flags",
    ];
    let values = [
        "tcp",
        "udp",
        "17",
        "0x10",
        "10.0.0.0/8",
        "10.0.0.0/255.0.0.0",
        "1.2.3.4",
        "80",
        "80-90",
        "0x10/0xfff0",
        "02:00:00:00:00:01",
        "frag",
        "nofrag/firstfrag",
        "x",
    ];
    let line = |_| {
        let kind = random.pick(&["flower", "flower", "flower", "matchall", "fw"]);
        let mut words = vec![random.class()];
        if kind == "flower" {
            words.push(format!("ip_proto {}", random.pick(&["tcp", "udp", "icmp"])));
            let key = random.pick(&keys);
            let name = random.spelled(key);
            // tc takes almost anything for a station.
            let is_station = ["d", "s"].iter().any(|first| name.starts_with(first))
                && !["_i", "_p"].iter().any(|rest| name.contains(rest));
            let value = if is_station { "02:00:00:00:00:01" } else { random.pick(&values) };
            words.push(format!("{name} {value}"));
        } else if random.one_in(4) {
            words.push(random.pick(&["skip_hw", "foo", "match", "h"]).to_owned());
        }
        let handle = if kind == "fw" {
            random.pick(&["handle 5", "handle 5/0xff", "handle x", "handle 1/x"])
        } else {
            ""
        };
        format!("filter add {} {handle} {kind} {}", random.head(), words.join(" "))
    };
    (0..count).map(line).collect()
}
