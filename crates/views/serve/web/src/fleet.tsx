// The limits that a fleet of boxes shares: who is heard, and the sum of all boxes beside each limit.
import { bits, duration, percent, plural } from "./format";
import { Section, Table } from "./parts";
import type { FleetAgent, FleetBox, FleetLimit, FleetStanding } from "./types";

const OFF: Record<string, string> = {
  waits: "OFF, all others are asked about its share",
  claimed: "OFF, its share is used",
  returns: "BACK, its share is given back",
};

const ago = (ms: number): string => (ms < 10_000 ? `${ms} ms` : duration(ms / 1000));

function state(one: FleetBox, me: string): string {
  if (one.name === me) return "this box";
  if (one.off) return OFF[one.off] ?? one.off;
  if (one.heard_ms_ago === null) return "NEVER heard";
  return one.is_heard ? `heard ${ago(one.heard_ms_ago)} ago` : `SILENT for ${ago(one.heard_ms_ago)}`;
}

const share = (part: number, of: number) => (of > 0 ? percent(part / of) : "");

function rowsOf(limit: FleetLimit): string[][] {
  const sent = limit.boxes.reduce((sum, one) => sum + one.sent_bps, 0);
  const waits = limit.is_held_back ? ", this box waits since its start" : "";
  return [
    [limit.name, "", "", bits(limit.sum_bps), bits(sent), share(sent, limit.limit_bps), `limit ${bits(limit.limit_bps)}${waits}`],
    ...limit.boxes.map((one) => [
      `${limit.name}: ${one.name}`, one.demand_bps === null ? "more" : bits(one.demand_bps), one.share_bps === null ? "" : bits(one.share_bps),
      bits(one.in_force_bps), bits(one.sent_bps), share(one.sent_bps, one.in_force_bps),
      one.is_heard ? (one.demand_bps === null ? "held back by its share" : "") : "SILENT: its safe share",
    ]),
  ];
}

/** What the agent on this box says; without one, what the instance enforces. */
export function Fleet({ agent, standing }: { agent: FleetAgent | null; standing: FleetStanding[] }) {
  if (!agent) return <Alone standing={standing} />;
  const { view } = agent;
  const silent = view.boxes.filter((one) => !one.is_heard && !one.off).length;
  const trouble =
    agent.instance_trouble !== null ? "its agent does not hear this instance"
    : agent.connected_through === null ? "its agent is not connected: this box keeps its safe shares"
    : silent > 0 ? `partition: ${silent} of ${plural(view.boxes.length, "box", "boxes")} silent`
    : "";
  return (
    <Section title={`Fleet ${agent.fleet}`} id="fleet" class="wide" aside={trouble === "" ? <span>connected through {agent.connected_through}</span> : <b class="alarm">{trouble}</b>}>
      <Table label="Boxes of the fleet" none="" heads={["box", "state", "lease ends in"]}
        rows={view.boxes.map((one) => [one.name, state(one, view.me), one.lease_left_ms === null ? "" : ago(one.lease_left_ms)])} />
      <Table label="Shared limits" none="This box shares no limit." heads={["limit, box", "demand", "share", "in force", "sent", "used", "state"]}
        rows={view.limits.flatMap(rowsOf)} />
      {view.limits_left_out > 0 && <p class="none">And {plural(view.limits_left_out, "limit")} more, which send less: narrows fleet show has them.</p>}
    </Section>
  );
}

function Alone({ standing }: { standing: FleetStanding[] }) {
  return (
    <Section title="Limits shared with other boxes" id="fleet" class="wide">
      <Table label="Shared limits" none="" heads={["limit", "of all boxes", "safe share", "in force", "state"]}
        rows={standing.map((one) => [
          one.name, bits(one.limit_bps), bits(one.safe_bps), bits(one.in_force_bps),
          one.because === "agent" ? "its agent does not answer" : `NO AGENT${one.alone_s === undefined ? "" : ` for ${duration(one.alone_s)}`}`,
        ])} />
    </Section>
  );
}
