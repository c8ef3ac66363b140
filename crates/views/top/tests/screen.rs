//! The screen, and the effect of keys.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use narrows_balance::{
    Counts, Health, ListedForward, ListedServer, ListedService, ListedTunnel, Protocol,
};
use narrows_snapshot::fleet_agent::Shown;
use narrows_snapshot::{
    Class, Conservation, Delays, Finding, FleetStanding, Heaviest, Heavy, Losses, Port, Qdisc,
    Queue, RoundTrip, Snapshot, Worker,
};
use narrows_top::{App, Excerpt, Feed, Look, View, draw, once};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Color;

const PLAIN: Look = Look { is_coloured: false, is_ascii: false };
const COLOURED: Look = Look { is_coloured: true, is_ascii: false };

/// An instance after `seconds`: every second, `mbit` megabits left port-b, half of them from each
/// of two queues, and seven packets were dropped.
fn instance(seconds: u64, mbit: u64) -> Snapshot {
    let bytes = seconds * mbit * 125_000;
    let queue = |share: u64| Queue {
        tx_bytes: bytes / share,
        tx_packets: seconds * 1_000 / share,
        backlog_packets: 12 / share,
        drops: seconds * 7,
        drops_by_reason: [("aqm".to_owned(), seconds * 7)].into(),
        ..Queue::default()
    };
    let class = |handle: &str, parent: Option<&str>, part: u64| {
        let mut class = Class {
            kind: "htb".into(),
            handle: handle.into(),
            root: parent.is_none(),
            parent: parent.map(Into::into),
            rate: Some(1_250_000),
            ceil: Some(5_000_000),
            ..Class::default()
        };
        class.stats.figures.bytes = bytes / part;
        class.stats.delays = Delays::new(vec![(2_000.0, seconds * 90), (400_000.0, seconds * 10)]);
        let detail = serde_json::json!({ "borrowed": seconds * 5 });
        class.stats.detail = serde_json::from_value(detail).unwrap();
        class
    };
    let mut cake: Qdisc = serde_json::from_str(
        &r#"{"kind":"cake","handle":"10:","parent":"1:10","options":{"rtt":100000},"tins":[
            {"threshold_rate":0,"avg_delay_us":10},
            {"delays":{"counts":[[4500,SECONDS],[61000,1]]}},{"avg_delay_us":0}]}"#
            .replace("SECONDS", &seconds.to_string()),
    )
    .unwrap();
    cake.figures.bytes = bytes;
    let heavy = |name: &str| Heavy {
        name: name.into(),
        bps: mbit * 500_000,
        delay_mean_us: 4_500,
        delay_p50_us: 4_000,
        delay_p99_us: 18_000,
        delay_p999_us: 20_000,
        delay_max_us: 20_000,
        round_trip: Some(RoundTrip { min_us: 31_000, p50_us: 33_000, p99_us: 70_000 }),
        losses: Some(Losses { segments: 1_000, before: 10, beyond: 5 }),
    };
    let heaviest = Heaviest {
        window_s: 3.0,
        sources: vec![heavy("192.0.2.1")],
        destinations: vec![heavy("2001:db8::7")],
        flows: vec![heavy("udp 192.0.2.1:53 > 192.0.2.2:4711")],
    };
    Snapshot {
        state: "running".into(),
        uptime_s: seconds as f64,
        fail: "open (bridge nrwbr2)".into(),
        ports: vec![
            Port { name: "port-a".into(), per_queue: vec![Queue::default()], ..Port::default() },
            Port {
                name: "port-b".into(),
                qdisc: "htb".into(),
                total: queue(1),
                per_queue: vec![queue(2), queue(2)],
                qdiscs: vec![cake],
                tx_rate_bps: mbit * 1_000_000,
                heaviest,
                classes: vec![
                    class("1:1", None, 1),
                    class("1:10", Some("1:1"), 4),
                    class("1:20", Some("1:1"), 2),
                    class("1:21", Some("1:20"), 8),
                ],
                ..Port::default()
            },
        ],
        services: vec![service(seconds)],
        workers: vec![
            Worker { cpu_s: seconds as f64 / 4.0, ..Worker::default() },
            Worker { queue: 1, silent_s: Some(3.2), ..Worker::default() },
        ],
        conservation: Conservation { received: 20, sent: 9, queued: 4, ..Default::default() },
        events: vec!["joined".into(), "the bridge was mended".into()],
        ..Snapshot::default()
    }
}

fn feed(app: &mut App, snapshot: Snapshot) {
    app.feed(Feed::Snapshot(Box::new(snapshot)));
}

/// An application that has seen two seconds at 30 Mbit/s.
fn app(view: View) -> App {
    let mut app = App::new(view);
    feed(&mut app, instance(1, 30));
    feed(&mut app, instance(2, 30));
    app
}

fn press(app: &mut App, keys: &[KeyCode]) {
    keys.iter().for_each(|&key| app.key(KeyEvent::new(key, KeyModifiers::NONE)));
}

fn type_in(app: &mut App, text: &str) {
    text.chars().for_each(|letter| press(app, &[KeyCode::Char(letter)]));
}

fn terminal(app: &App, look: Look, width: u16, height: u16) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(app, frame, look)).unwrap();
    terminal
}

/// The lines of a screen of 80 by 24.
fn screen(app: &App) -> Vec<String> {
    let shown = terminal(app, PLAIN, 80, 24).backend().to_string();
    shown.lines().map(|line| line.trim_matches('"').trim_end().to_owned()).collect()
}

/// The first line with `text`.
#[track_caller]
fn line(app: &App, text: &str) -> String {
    let shown = screen(app);
    let line = shown.iter().find(|line| line.contains(text));
    line.unwrap_or_else(|| panic!("{text:?} is not in\n{}", shown.join("\n"))).clone()
}

#[test]
fn a_port_shows_its_limit_what_it_delivered_and_its_history() {
    let port = line(&app(View::Queues), "port-b");
    assert!(port.contains("30.0M of 40.0Mbit/s  75 %"), "{port}");
    assert!(port.contains("▆ queued 12"), "{port}");
    assert!(port.contains("drop/s 7"), "{port}");
    assert!(line(&app(View::Queues), "port-a").contains("no limit"));
}

#[test]
fn the_packet_balance_and_the_state_stand_above_every_view() {
    for view in View::ALL {
        let app = app(view);
        assert_eq!(screen(&app)[0], "narrows running for 2 s, fail-open (bridge nrwbr2)");
        line(&app, "received 20 = sent 9 + queued 4 + dropped 0");
    }
}

#[test]
fn queues_share_what_their_port_sent() {
    let shown = line(&app(View::Queues), " queue 1");
    assert!(shown.contains("50 %") && shown.contains("15.0M"), "{shown}");
}

#[test]
fn classes_are_a_tree_with_the_used_part_of_their_ceilings() {
    let app = app(View::Classes);
    let class = line(&app, "  1:20");
    assert!(class.contains("10.0M 40.0M 15.0M   38 %"), "{class}");
    assert!(class.contains(" 2.0ms 400ms "), "of those sent in the last second: {class}");
    assert!(line(&app, "   1:21").ends_with("5"), "borrowed five a second");
}

#[test]
fn siblings_are_sorted_by_the_column_that_s_chooses() {
    let mut app = app(View::Classes);
    let order = |app: &App| {
        let shown = screen(app);
        let at = |class: &str| shown.iter().position(|line| line.contains(class)).unwrap();
        at(" 1:10 ") < at(" 1:20 ")
    };
    assert!(order(&app), "the instance's order");
    type_in(&mut app, "ssss");
    assert!(line(&app, ">Sent").starts_with("Class"));
    assert!(!order(&app), "1:20 sent more");
    type_in(&mut app, "r");
    assert!(order(&app), "the other way round");
}

#[test]
fn after_the_last_column_the_order_is_the_instances_again() {
    let mut app = app(View::Drops);
    let before = screen(&app);
    type_in(&mut app, "sssss");
    assert_eq!(screen(&app), before);
}

#[test]
fn a_text_filter_keeps_matches_and_their_ancestors() {
    let mut app = app(View::Classes);
    type_in(&mut app, "/1:21");
    assert!(screen(&app)[23].starts_with("/1:21_"));
    press(&mut app, &[KeyCode::Enter]);
    let shown = screen(&app).join("\n");
    assert!(shown.contains("   1:21") && shown.contains("  1:20") && !shown.contains("1:10"));
    press(&mut app, &[KeyCode::Esc]);
    line(&app, "1:10");
}

#[test]
fn a_filter_that_nothing_contains_says_so() {
    let mut app = app(View::Queues);
    type_in(&mut app, "/q?");
    line(&app, "no row contains \"q?\"");
    assert!(!app.is_done(), "letters of a filter are no commands");
}

#[test]
fn enter_shows_all_that_is_known_of_a_row_and_esc_goes_back() {
    let mut app = app(View::Classes);
    press(&mut app, &[KeyCode::Down, KeyCode::Down, KeyCode::Enter]);
    line(&app, "port-b 1:10");
    line(&app, "parent: 1:1");
    line(&app, "borrowed: 10");
    feed(&mut app, instance(3, 30));
    line(&app, "█");
    press(&mut app, &[KeyCode::Esc]);
    line(&app, "Borr/s");
}

#[test]
fn a_selection_stays_with_its_row_when_the_order_changes() {
    let mut app = app(View::Classes);
    press(&mut app, &[KeyCode::Down, KeyCode::Down]);
    type_in(&mut app, "ssss");
    press(&mut app, &[KeyCode::Enter]);
    line(&app, "port-b 1:10");
}

#[test]
fn every_row_has_details_or_says_that_it_has_none() {
    for view in View::ALL {
        let mut app = app(view);
        press(&mut app, &[KeyCode::End, KeyCode::Enter]);
        let shown = screen(&app).join("\n");
        let known = [": ", "nothing more is known of it"];
        assert!(known.iter().any(|known| shown.contains(known)), "{shown}");
    }
}

#[test]
fn details_chart_what_the_row_sent_how_long_it_took_and_what_was_dropped() {
    let mut app = app(View::Classes);
    press(&mut app, &[KeyCode::Down, KeyCode::Down, KeyCode::Enter]);
    for second in 3..9 {
        feed(&mut app, instance(second, 30));
    }
    line(&app, "sent: 7.50Mbit/s, highest 7.50Mbit/s");
    line(&app, "delay of 99 in 100 packets: 400ms");
    line(&app, "███");
}

#[test]
fn a_slash_begins_a_new_filter() {
    let mut app = app(View::Classes);
    type_in(&mut app, "/1:21");
    press(&mut app, &[KeyCode::Enter]);
    type_in(&mut app, "/1:10");
    assert!(screen(&app)[23].starts_with("/1:10_"), "{:?}", screen(&app)[23]);
}

#[test]
fn a_row_can_hide_what_is_below_it_and_leads_to_the_one_above() {
    let mut app = app(View::Classes);
    press(&mut app, &[KeyCode::Down, KeyCode::Down, KeyCode::Down, KeyCode::Left]);
    assert!(line(&app, "1:20 +1").starts_with("  1:20 +1"));
    assert!(!screen(&app).join("\n").contains("1:21"));
    press(&mut app, &[KeyCode::Right]);
    line(&app, "   1:21");
    press(&mut app, &[KeyCode::Left, KeyCode::Left]);
    assert!(screen(&app)[23].ends_with(" 2/4"), "at 1:1: {}", screen(&app)[23]);
}

#[test]
fn a_list_has_the_largest_of_all_first_and_says_what_it_stands_below() {
    let mut app = app(View::Classes);
    type_in(&mut app, "f");
    let shown = screen(&app);
    assert!(shown[5].contains(">Sent"), "{}", shown[5]);
    assert!(shown[6].starts_with("1:10 < 1:1 ") && shown[7].starts_with("1:21 < 1:20"));
    type_in(&mut app, "f");
    line(&app, "  1:20");
}

#[test]
fn the_last_line_says_where_the_selected_row_is() {
    let mut app = app(View::Classes);
    assert!(screen(&app)[23].ends_with(" 1/5"), "{}", screen(&app)[23]);
    press(&mut app, &[KeyCode::End]);
    assert!(screen(&app)[23].ends_with(" 5/5"));
}

#[test]
fn both_directions_of_a_class_are_one_row() {
    let with_uploads = |seconds| {
        let mut now = instance(seconds, 30);
        let mut up = now.ports[1].classes.clone();
        // The uploads of 1:10 have another handle and the same name.
        (up[1].handle, up[1].name) = ("1:77".into(), Some("Ann".into()));
        now.ports[1].classes[1].name = Some("Ann".into());
        up.truncate(2);
        up.iter_mut().for_each(|class| class.stats.figures.bytes /= 3);
        now.ports[0].classes = up;
        now
    };
    let mut app = App::new(View::Classes);
    feed(&mut app, with_uploads(1));
    feed(&mut app, with_uploads(2));
    type_in(&mut app, "b");
    line(&app, "A port-a  B port-b");
    let ann = line(&app, "Ann#1:77");
    let cells: Vec<&str> = ann.split_whitespace().collect();
    assert_eq!(cells[1..5], ["2.50M", "6.2", "%", "400ms"], "{ann}");
    assert_eq!(cells[6..10], ["7.50M", "19", "%", "400ms"], "{ann}");
    // What only one port has stands below what it stands below there.
    assert!(line(&app, "1:21").starts_with("   1:21"));
    type_in(&mut app, "3");
    line(&app, "Borr/s");
}

#[test]
fn a_wide_screen_is_used_to_its_end() {
    let shown = terminal(&app(View::Classes), PLAIN, 160, 24).backend().to_string();
    let longest = shown.lines().map(|line| line.trim_matches('"').trim_end().chars().count());
    assert_eq!(longest.max(), Some(160), "{shown}");
    assert!(shown.contains("1:10 ") && shown.contains("███"));
}

#[test]
fn an_excerpt_is_sorted_by_any_column_and_as_long_as_asked() {
    let excerpt = Excerpt {
        only: Some(View::Classes),
        sort: Some("sent".to_owned()),
        is_flat: true,
        rows: Some(1),
    };
    let text = once(&app(View::Queues), &excerpt, PLAIN).unwrap();
    let last: Vec<&str> = text.lines().rev().take(2).collect();
    assert!(last[0].starts_with("1:10 < 1:1") && last[1].contains(">Sent"), "{text}");
    let wrong = Excerpt { sort: Some("size".to_owned()), ..excerpt };
    assert!(once(&app(View::Queues), &wrong, PLAIN).unwrap_err().contains("Borr/s, Ceil, Class"));
}

#[test]
fn tins_have_names_and_delays() {
    let tin = line(&app(View::Tins), "Best Effort");
    assert!(tin.contains("4.5ms"), "{tin}");
}

#[test]
fn drops_are_told_by_reason() {
    let reason = line(&app(View::Drops), " aqm");
    assert!(reason.contains("7       14  100 %"), "{reason}");
}

#[test]
fn a_silent_worker_is_said_in_a_word() {
    assert!(line(&app(View::Workers), "SILENT 3 s").starts_with('1'));
    assert!(line(&app(View::Workers), " ok").contains("25 %"), "a quarter of its core");
}

#[test]
fn the_latest_event_is_the_first() {
    let shown = screen(&app(View::Events)).join("\n");
    assert!(shown.find("the bridge was mended").unwrap() < shown.find("joined").unwrap());
}

#[test]
fn while_paused_nothing_moves_and_then_rates_are_means_over_the_pause() {
    let mut app = app(View::Queues);
    type_in(&mut app, "p");
    let paused = screen(&app);
    assert!(paused[0].ends_with("PAUSED"));
    feed(&mut app, instance(3, 60));
    assert_eq!(screen(&app), paused);
    type_in(&mut app, "p");
    // 60 megabits after two seconds, 120 after four.
    feed(&mut app, instance(4, 30));
    assert!(line(&app, "port-b").contains("30.0M of"));
}

#[test]
fn an_instance_that_is_gone_is_told_and_its_last_figures_stay() {
    let mut app = app(View::Queues);
    app.feed(Feed::Gone("no narrows runs here".into()));
    let shown = screen(&app);
    assert!(shown[0].starts_with("narrows is GONE") && shown[0].contains("no narrows runs here"));
    assert!(line(&app, "port-b").contains("30.0M of"));
}

#[test]
fn an_instance_that_came_back_has_rates_from_its_second_snapshot_on() {
    let mut app = app(View::Queues);
    app.feed(Feed::Gone("stopped".into()));
    // It has run longer than the one before, so its uptime alone does not reveal it.
    feed(&mut app, instance(10, 5));
    assert!(screen(&app)[0].starts_with("narrows running for 10 s"));
    assert!(line(&app, "port-b").contains("    - of 40.0Mbit/s     -"));
    feed(&mut app, instance(11, 5));
    assert!(line(&app, "port-b").contains("5.00M of"));
}

#[test]
fn problems_are_on_top() {
    let mut app = App::new(View::Queues);
    let warnings = vec!["port-b has GRO".into(), "port-a has LRO".into()];
    feed(&mut app, Snapshot { warnings, ..instance(1, 1) });
    assert_eq!(screen(&app)[1], "warning (and 1 more: 7): port-b has GRO");
}

#[test]
fn packets_without_a_trace_are_told() {
    let mut app = App::new(View::Queues);
    let mut snapshot = instance(1, 1);
    snapshot.conservation.unaccounted = -2;
    snapshot.conservation.bypassed = 3;
    feed(&mut app, snapshot);
    line(&app, ", -2 UNACCOUNTED, 3 BYPASSED");
}

#[test]
fn help_says_what_the_keys_do_and_any_key_goes_back() {
    let mut app = app(View::Queues);
    type_in(&mut app, "?");
    line(&app, "show only rows that contain a text");
    line(&app, "any key goes back");
    type_in(&mut app, "x");
    line(&app, "Backlog");
}

#[test]
fn q_and_control_c_end_it() {
    for (key, modifiers) in [('q', KeyModifiers::NONE), ('c', KeyModifiers::CONTROL)] {
        let mut app = app(View::Queues);
        app.key(KeyEvent::new(KeyCode::Char(key), modifiers));
        assert!(app.is_done());
    }
}

/// It gets ten connections a second, all of them at the first of two servers.
fn service(seconds: u64) -> ListedService {
    let stats =
        Counts { connections: 10 * seconds, packets: 400 * seconds, bytes: 50_000 * seconds };
    let server = |number: u8, health, stats| ListedServer {
        address: [10, 0, 0, number].into(),
        forward: ListedForward::Tunnel,
        weight: 1,
        health,
        stats,
        tunnel: Some(ListedTunnel::Ipip),
        quic_id: None,
    };
    ListedService {
        protocol: Protocol::Tcp,
        address: [192, 0, 2, 1].into(),
        port: 443,
        scheduler: "mh".into(),
        flags: None,
        persistence_s: None,
        client_bits: 32,
        one_packet: false,
        quic: None,
        stats,
        servers: vec![server(1, Health::Up, stats), server(2, Health::Down, Counts::default())],
    }
}

#[test]
fn services_have_their_servers_below_them() {
    let app = app(View::Services);
    let cells = |name: &str| -> Vec<String> {
        let line = line(&app, name);
        line.split_whitespace().map(str::to_owned).collect()
    };
    assert_eq!(cells("TCP 192.0.2.1:443")[2..], ["mh", "10", "400", "400k", "20"]);
    assert_eq!(cells("10.0.0.1:443")[1..], ["Tunnel", "1", "10", "400", "400k", "20", "up"]);
    assert_eq!(cells("10.0.0.2:443")[1..], ["Tunnel", "1", "0", "0", "0", "0", "DOWN"]);
}

/// What an agent in a fleet of three boxes says, one of which is silent.
fn agent() -> Shown {
    let sharer = |name: &str, demand: &str, in_force: u64, is_heard: bool| {
        let share = if is_heard { "40000000" } else { "null" };
        format!(
            r#"{{"name":"{name}","is_heard":{is_heard},"demand_bps":{demand},"share_bps":{share},
               "in_force_bps":{in_force},"sent_bps":10000000}}"#
        )
    };
    let sharers = [
        sharer("box1", "null", 40_000_000, true),
        sharer("box2", "3000000", 20_000_000, true),
        sharer("box3", "0", 30_000_000, false),
    ];
    let text = format!(
        r#"{{"fleet":"edge","interval_ms":50,"lease_ms":2000,"connected_through":"box1",
           "instance_trouble":null,"events":[],
           "traffic":{{"messages_sent":0,"bytes_sent":0,"messages_dropped":0,"messages_received":0,
             "bytes_received":0,"messages_malformed":0,"turns":1,"turns_failed":0}},
           "view":{{"me":"box1","limits_left_out":3,"boxes":[
             {{"name":"box1","is_heard":true,"heard_ms_ago":0,"lease_left_ms":null}},
             {{"name":"box2","is_heard":true,"heard_ms_ago":30,"lease_left_ms":1970}},
             {{"name":"box3","is_heard":false,"heard_ms_ago":61000,"lease_left_ms":null}}],
           "limits":[{{"name":"line","port":"port-b","at":"1:","limit_bps":90000000,
             "safe_bps":30000000,"in_force_bps":40000000,"sent_bps":10000000,"lent":[],
             "borrowed":[{{"name":"box2","bps":10000000}}],"sum_bps":90000000,
             "boxes":[{}]}}]}}}}"#,
        sharers.join(",")
    );
    serde_json::from_str(&text).unwrap()
}

/// An application that has seen what this agent says of a shared limit.
fn in_fleet(agent: Option<Shown>) -> App {
    let standing = FleetStanding {
        name: "line".into(),
        in_force_bps: 30_000_000,
        because: "alone".into(),
        alone_s: Some(61.0),
        ..FleetStanding::default()
    };
    let fleet_agent = agent.map(Box::new);
    let mut app = App::new(View::Fleet);
    feed(&mut app, Snapshot { fleet: vec![standing], fleet_agent, ..instance(2, 30) });
    app
}

#[test]
fn a_fleet_has_its_boxes_and_the_sum_of_each_limit_beside_it() {
    let app = in_fleet(Some(agent()));
    let cells = |name: &str| -> Vec<String> {
        let line = line(&app, name);
        line.split_whitespace().map(str::to_owned).collect()
    };
    assert!(line(&app, "fleet edge").ends_with(" PARTITION: 1 of 3 SILENT"));
    assert!(line(&app, " ago").ends_with(" 30 ms ago, lease 1970 ms"));
    assert!(line(&app, "SILENT for").starts_with(" box3"), "{}", line(&app, "SILENT for"));
    // In force, sent and used: of all boxes.
    assert_eq!(cells("line ")[1..], ["90.0M", "30.0M", "33", "%", "of", "90.0Mbit/s"]);
    let held_back =
        ["box1", "40.0M", "40.0M", "10.0M", "25", "%", "held", "back", "by", "its", "share"];
    assert_eq!(cells("held back"), held_back);
    assert_eq!(cells("3.00M")[..6], ["box2", "3.00M", "40.0M", "20.0M", "10.0M", "50"]);
    line(&app, "SILENT: its safe share");
    line(&app, "and 3 limits more");
}

#[test]
fn the_details_of_a_shared_limit_say_from_whom_it_borrows() {
    let mut app = in_fleet(Some(agent()));
    press(&mut app, &[KeyCode::Down; 4]);
    press(&mut app, &[KeyCode::Enter]);
    line(&app, "limit line");
    line(&app, "borrowed from box2: 10.0Mbit/s");
}

#[test]
fn without_an_agent_there_is_what_the_instance_enforces() {
    let said = line(&in_fleet(None), "line ");
    assert!(said.contains("30.0M") && said.ends_with("NO AGENT for 1 min 1 s"), "{said}");
}

#[test]
fn that_no_agent_answers_where_one_was_expected_is_a_warning() {
    let said = "no agent answers at";
    let finding = |subject: &str| Finding {
        subject: subject.into(),
        severity: "warning".into(),
        what: said.into(),
        remedy: None,
    };
    let mut app = App::new(View::Fleet);
    let findings = vec![finding("kernel"), finding("fleet")];
    feed(&mut app, Snapshot { findings, ..instance(2, 30) });
    line(&app, said);
}

#[test]
fn tab_and_digits_choose_views() {
    let mut app = app(View::Queues);
    press(&mut app, &[KeyCode::Tab]);
    line(&app, "Thread");
    press(&mut app, &[KeyCode::BackTab, KeyCode::BackTab]);
    line(&app, "Both ways");
    press(&mut app, &[KeyCode::BackTab]);
    line(&app, "no shared limits");
    press(&mut app, &[KeyCode::BackTab]);
    line(&app, "Service, server");
    press(&mut app, &[KeyCode::BackTab]);
    line(&app, "Port, host, flow");
    press(&mut app, &[KeyCode::BackTab]);
    line(&app, "the bridge was mended");
    type_in(&mut app, "3");
    line(&app, "Borr/s");
    type_in(&mut app, "0");
    line(&app, "no shared limits");
    let tabs = "1queues 2workers 3classes 4qdiscs 5tins 6drops 7events 8hosts 9services 0fleet";
    assert_eq!(line(&app, "2workers"), tabs, "all of them at 80 columns");
}

#[test]
fn hosts_and_flows_have_their_share_and_their_delay() {
    let app = app(View::Heaviest);
    let flow = line(&app, "udp 192.0.2.1:53 > 192.0.2.2:4711");
    let cells: Vec<&str> = flow.split_whitespace().skip(4).collect();
    let wanted = ["50", "%", "15.0M", "4.5ms", "18ms", "31ms", "1.5", "%"];
    assert_eq!(cells, wanted, "{flow}");
    line(&app, "2001:db8::7");
}

#[test]
fn a_class_is_called_by_its_name() {
    let mut app = App::new(View::Classes);
    let mut now = instance(1, 30);
    now.ports[1].classes[1].name = Some("Ann".into());
    app.feed(Feed::Snapshot(Box::new(now)));
    line(&app, " Ann#1:10 ");
}

#[test]
fn eighty_columns_hold_every_view() {
    for view in View::ALL {
        // What a wider screen has in the same columns is complete at 80, too.
        let app = app(view);
        let heading = |width| {
            let shown = terminal(&app, PLAIN, width, 24).backend().to_string();
            let line = shown.lines().nth(5).unwrap().trim_matches('"').trim_end().to_owned();
            line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(heading(80), heading(200), "{view:?}");
    }
    let mut app = app(View::Queues);
    type_in(&mut app, "?");
    let help = |width| -> Vec<String> {
        let shown = terminal(&app, PLAIN, width, 24).backend().to_string();
        let lines = shown.lines().skip(5).take(18);
        lines.map(|line| line.trim_matches('"').trim_end().to_owned()).collect()
    };
    assert!(help(80).contains(&"any key goes back".to_owned()), "the whole help");
    assert_eq!(help(80), help(200));
}

#[test]
fn no_screen_is_too_small_to_draw() {
    for (width, height) in [(1, 1), (10, 3), (80, 1), (3, 24)] {
        for view in View::ALL {
            let mut app = app(view);
            terminal(&app, COLOURED, width, height);
            press(&mut app, &[KeyCode::Enter]);
            terminal(&app, COLOURED, width, height);
        }
    }
}

#[test]
fn without_colour_no_cell_has_one() {
    let colours = |look| {
        let terminal = terminal(&app(View::Workers), look, 80, 24);
        let cells = terminal.backend().buffer().content();
        cells.iter().any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
    };
    assert!(!colours(PLAIN));
    assert!(colours(COLOURED));
}

#[test]
fn an_ascii_terminal_gets_ascii() {
    let ascii = Look { is_coloured: false, is_ascii: true };
    for view in View::ALL {
        assert!(terminal(&app(view), ascii, 80, 24).backend().to_string().is_ascii(), "{view:?}");
    }
}

#[test]
fn a_second_snapshot_changes_few_cells() {
    let mut app = app(View::Queues);
    let before = terminal(&app, COLOURED, 80, 24).backend().buffer().clone();
    feed(&mut app, instance(3, 30));
    let after = terminal(&app, COLOURED, 80, 24).backend().buffer().clone();
    let changed = before.diff(&after).len();
    assert!(changed < 60, "{changed} cells are sent over a slow line");
}

#[test]
fn one_frame_as_text_has_every_view_and_no_blanks_at_the_end() {
    let text = once(&app(View::Queues), &Excerpt::default(), PLAIN).unwrap();
    for word in ["port-b", "Worker", "Class", "Qdisc", "Cake, tin", "aqm", "joined"] {
        assert!(text.contains(word), "{word} is not in\n{text}");
    }
    assert!(text.lines().all(|line| line.trim_end() == line));
    let only = Excerpt { only: Some(View::Workers), ..Excerpt::default() };
    let only = once(&app(View::Queues), &only, PLAIN).unwrap();
    assert!(only.contains("Worker") && !only.contains("Class"));
}

#[test]
fn ten_thousand_classes_are_one_screen_around_the_selected_one() {
    let mut app = App::new(View::Classes);
    let mut snapshot = instance(1, 1);
    let class = snapshot.ports[1].classes[1].clone();
    snapshot.ports[1].classes.extend(
        (0..10_000).map(|number| Class {
            handle: format!("1:{:x}", 0x100 + number).into(),
            ..class.clone()
        }),
    );
    feed(&mut app, snapshot);
    press(&mut app, &[KeyCode::End]);
    line(&app, "1:280f");
    press(&mut app, &[KeyCode::Home]);
    line(&app, " 1:1 ");
}

/// Texts that say what a thing is: others are not read.
const KINDS: &[&str] = &[
    "queue",
    "cpu",
    "htb",
    "cake",
    "tcp",
    "tunnel",
    "ipip",
    "up",
    "down",
    "192.0.2.1",
    "10.0.0.1",
    "10.0.0.2",
];

/// `value` with `hostile` behind every text in it, but for those that say what a thing is.
fn poisoned(value: &mut serde_json::Value, hostile: &str) {
    match value {
        serde_json::Value::String(text) if !KINDS.contains(&&**text) => {
            text.push_str(hostile);
        }
        serde_json::Value::Array(all) => all.iter_mut().for_each(|it| poisoned(it, hostile)),
        serde_json::Value::Object(fields) => {
            fields.values_mut().for_each(|it| poisoned(it, hostile));
        }
        _ => {}
    }
}

#[test]
fn no_view_shows_what_steers_a_terminal() {
    for hostile in ["\x1b[2J", "\nforged", "\u{202e}", "\u{9b}31m\r", "\0\x07"] {
        let poison = |seconds| {
            let mut value = serde_json::to_value(instance(seconds, 30)).unwrap();
            poisoned(&mut value, hostile);
            serde_json::from_value::<Snapshot>(value).unwrap()
        };
        let mut app = App::new(View::Queues);
        feed(&mut app, poison(1));
        feed(&mut app, poison(2));
        let is_wrong = |it: char| narrows_escape::is_hidden(it) && it != '\n';
        let text = once(&app, &Excerpt::default(), PLAIN).unwrap();
        assert!(!text.contains(is_wrong) && !text.contains("\nforged"), "{text:?}");
        for key in "123456789".chars() {
            for keys in [[KeyCode::Char(key), KeyCode::Enter], [KeyCode::Esc, KeyCode::Esc]] {
                press(&mut app, &keys);
                let mut terminal = Terminal::new(TestBackend::new(120, 40)).unwrap();
                terminal.draw(|frame| draw(&app, frame, PLAIN)).unwrap();
                let shown = terminal.backend().buffer().content().iter();
                let shown: String = shown.map(ratatui::buffer::Cell::symbol).collect();
                assert!(!shown.contains(is_wrong), "{shown:?}");
            }
        }
    }
}
