// What the server sends; crates/views/serve/src/view says what each figure is. Times of packets are
// microseconds, rates bits per second, shares 0 to 1. What is left out or null is unknown.

export type Quality = "idle" | "good" | "fair" | "poor" | "bad";
export type Way = "down" | "up";
export type Kind = "subscribers" | "sites" | "hosts";
export type Figure = number | null | undefined;

/** How well an application works: Quality of Outcome, in percent. */
export interface Outcome {
  application: string;
  percent: number;
  because: string;
}

export interface Score {
  application: string;
  percent: number | null;
  because: string;
  missing?: string[];
  meaning: string;
}

/** What quality is, in the words of the server. */
export interface Scale {
  steps: { step: Quality; delay: number; dropped: number }[];
  reasons: Record<string, string>;
  applications: string[];
}

export interface Standing {
  level: "good" | "warning" | "bad";
  title: string;
  detail: string;
  uptime_s?: number;
  stale_since?: number;
  warnings: string[];
}

export interface Side {
  quality: Quality;
  rate?: number;
  ceil?: number;
  assured?: number;
  share?: number;
  median?: number;
  delay?: number;
  round_trip?: number;
  round_trip_min?: number;
  round_trip_p99?: number;
  before?: number;
  beyond?: number;
  drops?: number;
  dropped?: number;
  reasons?: string[];
  queued: number;
  queued_bytes: number;
}

export interface Row {
  id: string;
  name: string;
  class: string;
  members: number;
  site?: string;
  site_id?: string;
  quality: Quality;
  /** Of the application that suffers most. */
  score?: Outcome;
  down: Side | null;
  up: Side | null;
}

export interface Direction {
  port: string;
  way: Way;
  qdisc: string;
  no_carrier: boolean;
  delivered: Figure;
  received: Figure;
  limit: Figure;
  median: Figure;
  delay: Figure;
  delay_p999: Figure;
  round_trip: Figure;
  round_trip_p99: Figure;
  before: Figure;
  beyond: Figure;
  drops: Figure;
  queued: number;
  queued_bytes: number;
  quality: Quality;
}

export interface Counts {
  subscribers: number;
  sites: number;
  hosts: number;
  by_quality: Record<Quality, number>;
}

export interface Tile {
  id: string;
  name: string;
  rate: Figure;
  quality: Quality;
  members?: Tile[];
  others?: number;
  others_rate?: number;
}

export interface Event {
  time: number;
  is_before: boolean;
  text: string;
}

export interface Series {
  device: string;
  what: string;
  name: string;
  values: (number | null)[];
}

export interface Recent {
  times: number[];
  series: Series[];
}

export interface Heat {
  bounds: number[];
  times: number[];
  ports: { port: string; way: Way; columns: number[][] }[];
}

export interface Tin {
  name: string;
  threshold_rate: number;
  sent_bytes: number;
  sent_packets: number;
  backlog_bytes: number;
  peak_delay_us: number;
  avg_delay_us: number;
  base_delay_us: number;
  drops: number;
  ecn_mark: number;
  sparse_flows: number;
  bulk_flows: number;
  unresponsive_flows: number;
}

export interface Totals {
  port: string;
  qdisc: string | null;
  bytes: number;
  packets: number;
  drops: number;
  overlimits: number;
  requeues: number;
  backlog: number;
  qlen: number;
  delays: number[];
  lent: number | null;
  borrowed: number | null;
  marks: number | null;
  tins: Tin[];
}

export interface Flow {
  port: string;
  name: string;
  rate: number;
  median: number;
  delay: number;
}

export interface Worker {
  queue: number;
  cpu: number;
  cpu_s: number;
  frames: number;
  free_frames: number;
  receiving_frames: number;
  waiting_frames: number;
  sending_frames: number;
  silent_s?: number;
}

export interface Attached {
  name: string;
  xdp: string;
  copy: string;
  no_carrier: boolean;
  mtu: number;
  queues: number;
  qdisc: string;
  counted_by: string;
  sent_bytes: number[];
  losses: [string, number][];
  bypassed: number;
}

export interface Balance {
  received: number;
  copied: number;
  sent: number;
  to_box?: number;
  queued: number;
  dropped: Record<string, number>;
  unaccounted: number;
  bypassed: number;
  is_exact: boolean;
}

export interface Finding {
  subject: string;
  severity: string;
  what: string;
  remedy?: string;
}

interface ServiceStats {
  connections: number;
  packets: number;
  bytes: number;
}

export interface Service {
  protocol: string;
  address: string;
  port: number;
  scheduler: string;
  stats: ServiceStats;
  servers: {
    address: string;
    port: number;
    forward: string;
    weight: number;
    health: string;
    stats: ServiceStats;
  }[];
}

/** A shared limit as the instance knows it. */
export interface FleetStanding {
  name: string;
  limit_bps: number;
  safe_bps: number;
  in_force_bps: number;
  because: string;
  alone_s?: number;
}

export interface FleetBox {
  name: string;
  is_heard: boolean;
  heard_ms_ago: number | null;
  lease_left_ms: number | null;
  off: string | null;
}

/** A shared limit as the fleet's agent knows it: of all boxes. */
export interface FleetLimit {
  name: string;
  limit_bps: number;
  sum_bps: number;
  is_held_back: boolean;
  boxes: {
    name: string;
    is_heard: boolean;
    demand_bps: number | null;
    share_bps: number | null;
    in_force_bps: number;
    sent_bps: number;
  }[];
}

export interface FleetAgent {
  fleet: string;
  connected_through: string | null;
  instance_trouble: string | null;
  view: { me: string; boxes: FleetBox[]; limits: FleetLimit[]; limits_left_out: number };
}

/** All parts that any screen may have. */
export interface Parts {
  error?: string;
  time?: number;
  interval?: number;
  standing?: Standing;
  scale?: Scale;
  directions?: Direction[];
  counts?: Counts;
  map?: Tile[];
  events?: Event[];
  recent?: Recent;
  heat?: Heat;
  total?: number;
  offset?: number;
  order?: string[];
  rows?: Record<string, Row>;
  flows?: Flow[];
  missing?: boolean;
  row?: Row;
  path?: { id: string; name: string }[];
  addresses?: string[];
  bounds?: number[];
  scores?: Score[];
  down?: Totals | null;
  up?: Totals | null;
  uptime?: number;
  ports?: Attached[];
  workers?: Worker[];
  balance?: Balance;
  findings?: Finding[];
  services?: Service[];
  fleet?: FleetStanding[];
  fleet_agent?: FleetAgent | null;
}
