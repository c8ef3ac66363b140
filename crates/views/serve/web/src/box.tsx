// The box itself.
import { useRef } from "preact/hooks";
import { Fleet } from "./fleet";
import { bits, count, percent, perSecond, plural, scaled } from "./format";
import { useScreen } from "./live";
import { Events, Section, Table } from "./parts";
import type { Attached, Balance, Parts, Service } from "./types";

const HEALTH: Record<string, string> = { up: "up", down: "DOWN", last: "FAILS, is the last" };

export function Box() {
  const live = useScreen("view=box");
  const past = useRef<Parts[]>([]);
  const is = live.data;
  const newest = past.current[past.current.length - 1];
  if (is.uptime !== undefined && newest?.uptime !== is.uptime) past.current = [...past.current, { ...is }].slice(-2);
  const was = past.current.length === 2 ? past.current[0] : undefined;
  const seconds = (is.uptime ?? 0) - (was?.uptime ?? 0);
  if (!is.ports) return <p class="none">Waiting for the first figures.</p>;
  const findings = (is.findings ?? []).filter((one) => one.severity !== "ok");
  return (
    <div class="screen box">
      <Section title="Ports" class="wide">
        <Table label="Ports" none="There are no ports." heads={["port", "how", "qdisc", "queues", "MTU, B", "bypassed, packets"]}
          rows={is.ports.map((port) => [
            port.name, [port.xdp, port.copy, port.no_carrier ? "NO CARRIER" : ""].filter((word) => word !== "").join(", "),
            port.qdisc, count(port.queues), count(port.mtu), count(port.bypassed),
          ])} />
      </Section>
      <Section title="Workers" class="wide">
        <Table label="Workers" none="The ports are not joined."
          heads={["worker", "core", "CPU", "frames", "free", "receiving", "waiting", "sending", "state"]}
          rows={(is.workers ?? []).map((one) => {
            const old = was?.workers?.find((other) => other.queue === one.queue);
            return [
              count(one.queue), count(one.cpu), percent(perSecond(old?.cpu_s, one.cpu_s, seconds)), count(one.frames), count(one.free_frames),
              count(one.receiving_frames), count(one.waiting_frames), count(one.sending_frames),
              one.silent_s === undefined ? "ok" : `SILENT for ${one.silent_s.toFixed(1)} s`,
            ];
          })} />
      </Section>
      <Queues ports={is.ports} was={was?.ports} seconds={seconds} />
      {is.balance && <Books balance={is.balance} />}
      <Losses ports={is.ports} was={was?.ports} seconds={seconds} />
      {(is.fleet ?? []).length > 0 && <Fleet agent={is.fleet_agent ?? null} standing={is.fleet ?? []} />}
      {(is.services ?? []).length > 0 && <Services services={is.services ?? []} />}
      <Section title="Findings of narrows doctor at the start" class="wide">
        <Table text label="Findings" none="Nothing to mend." heads={["subject", "severity", "finding", "what to type"]}
          rows={findings.map((one) => [one.subject, one.severity, one.what, one.remedy ?? ""])} />
      </Section>
      <Section title="Events" class="wide"><Events events={is.events ?? []} /></Section>
    </div>
  );
}

function Queues({ ports, was, seconds }: { ports: Attached[]; was: Attached[] | undefined; seconds: number }) {
  const rows = ports.flatMap((port) => {
    const old = was?.find((one) => one.name === port.name);
    return port.sent_bytes.map((bytes, number) => {
      const rate = perSecond(old?.sent_bytes[number], bytes, seconds);
      return [`${port.name} ${port.counted_by} ${number}`, bits(rate === undefined || rate === null ? undefined : rate * 8), scaled(bytes, "B")];
    });
  });
  return (
    <Section title="What each queue or CPU sends">
      <Table label="Queues" none="No queue is served." heads={["queue", "sends", "since the start"]} rows={rows} />
    </Section>
  );
}

function Books({ balance }: { balance: Balance }) {
  const dropped = Object.entries(balance.dropped).filter(([, packets]) => packets > 0);
  return (
    <Section title="Packet balance" aside={balance.is_exact ? <span>exact</span> : <b class="alarm">{plural(Math.abs(balance.unaccounted), "packet")} unaccounted: a fault of Narrows</b>}>
      <Table label="Packet balance" none="" heads={["packets", "since the start"]} rows={[
        ["received", count(balance.received)],
        ...(balance.copied > 0 ? [["copied", count(balance.copied)]] : []),
        ["sent", count(balance.sent)],
        ...(balance.to_box ? [["to this box", count(balance.to_box)]] : []),
        ["queued now", count(balance.queued)],
        ...dropped.map(([reason, packets]) => [`dropped by a qdisc: ${reason}`, count(packets)]),
        ["bypassed the workers", count(balance.bypassed)],
      ]} />
    </Section>
  );
}

function Losses({ ports, was, seconds }: { ports: Attached[]; was: Attached[] | undefined; seconds: number }) {
  const rows = ports.flatMap((port) => {
    const old = was?.find((one) => one.name === port.name);
    return port.losses.map(([reason, packets]) => {
      const before = old?.losses.find(([name]) => name === reason)?.[1] ?? 0;
      const place = /^(kernel|device) /.test(reason) ? reason : `qdisc: ${reason}`;
      return [`${port.name} ${place}`, count(packets), scaled(was ? perSecond(before, packets, seconds) : undefined, "/s")];
    });
  });
  return (
    <Section title="Where packets were lost" class="wide">
      <Table label="Losses" none="Nothing was lost." heads={["port, place and reason", "since the start", "now"]} rows={rows} />
    </Section>
  );
}

function Services({ services }: { services: Service[] }) {
  const name = (one: { address: string; port: number }) => (one.address.includes(":") ? `[${one.address}]:${one.port}` : `${one.address}:${one.port}`);
  return (
    <Section title="Balanced services" class="wide">
      <Table label="Services" none="" heads={["service, server", "way", "weight", "connections", "packets", "sent", "state"]}
        rows={services.flatMap((one) => [
          [`${one.protocol.toUpperCase()} ${name(one)}`, one.scheduler, "", count(one.stats.connections), count(one.stats.packets), scaled(one.stats.bytes, "B"), ""],
          ...one.servers.map((server) => [
            `  ${name(server)}`, server.forward, String(server.weight), count(server.stats.connections), count(server.stats.packets),
            scaled(server.stats.bytes, "B"), HEALTH[server.health] ?? server.health,
          ]),
        ])} />
    </Section>
  );
}
