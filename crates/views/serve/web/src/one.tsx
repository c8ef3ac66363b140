// One subscriber, site or host: what its line does, in both directions.
import { useEffect, useRef, useState } from "preact/hooks";
import { Chart } from "./charts";
import { bits, clock, count, packets, percent, perSecond, plural, scaled, time } from "./format";
import { Flows } from "./grid";
import { useScreen } from "./live";
import { Bar, Events, Mark, Section, Table, WAYS, why } from "./parts";
import { Outcomes } from "./quality";
import { linkTo } from "./route";
import type { Figure, Kind, Side, Totals, Way } from "./types";

/** So many points are kept while the screen is open. */
const POINTS = 900;

interface Points {
  times: number[];
  down: Record<"rate" | "delay" | "median", (number | null)[]>;
  up: Record<"rate" | "delay" | "median", (number | null)[]>;
}

const none = (): Points => ({
  times: [],
  down: { rate: [], delay: [], median: [] },
  up: { rate: [], delay: [], median: [] },
});

export function One({ kind, id }: { kind: Kind; id: string }) {
  const live = useScreen(`view=one&${new URLSearchParams({ kind, id })}`);
  const { row, path, missing, flows, events, bounds, addresses } = live.data;
  const points = useRef(none());
  const shown = useRef("");
  const totals = useRef<{ uptime: number; down?: Totals | null; up?: Totals | null }[]>([]);
  if (shown.current !== `${kind} ${id}`) {
    shown.current = `${kind} ${id}`;
    points.current = none();
    totals.current = [];
  }
  const { times } = points.current;
  if (row && row.id === id && live.time > (times[times.length - 1] ?? 0) && live.standing?.stale_since === undefined) {
    times.push(live.time);
    for (const way of ["down", "up"] as Way[]) {
      for (const what of ["rate", "delay", "median"] as const) points.current[way][what].push(row[way]?.[what] ?? null);
    }
    if (times.length > POINTS) {
      times.shift();
      for (const way of ["down", "up"] as Way[]) for (const values of Object.values(points.current[way])) values.shift();
    }
    const { uptime, down, up } = live.data;
    totals.current = [...totals.current, { uptime: uptime ?? 0, down, up }].slice(-2);
  }
  if (missing) {
    return (
      <div class="screen">
        <Section title={id}>
          <p class="none">There is no {kind.slice(0, -1)} with this name now. <a href={`#/${kind}`}>All {kind}</a></p>
        </Section>
      </div>
    );
  }
  if (!row) return <p class="none">Waiting for the first figures.</p>;
  const chart = (title: string, what: "rate" | "delay" | "median", format: (value: Figure) => string) => (
    <Chart title={title} times={times} format={format} lines={[
      ...(row.down ? [{ label: "down", colour: "--down", values: points.current.down[what] }] : []),
      ...(row.up ? [{ label: "up", colour: "--up", values: points.current.up[what], dashed: true }] : []),
    ]} />
  );
  return (
    <div class="screen one">
      <Section
        title={row.name}
        class="who"
        aside={<Mark quality={row.quality} />}
      >
        <p class="place">
          {(path ?? []).slice().reverse().map((site) => <span key={site.id}><a href={linkTo("sites", site.id)}>{site.name}</a> › </span>)}
          {row.class === "" ? "host" : `class ${row.class}`}
          {row.members > 0 && <span>, <a href={`#/subscribers?${new URLSearchParams({ site: row.id })}`}>{plural(row.members, "member")}</a></span>}
          {(addresses ?? []).length > 0 && <span>, {addresses?.join(", ")}</span>}
          {why(row) !== "" && <span class="why">, {why(row)}</span>}
        </p>
      </Section>
      <Direction way="down" side={row.down} totals={live.data.down} />
      <Direction way="up" side={row.up} totals={live.data.up} />
      <Outcomes id={id} hasName={row.id !== row.class} scores={live.data.scores ?? []} />
      <Section title={`Since ${clock(times[0] ?? live.time)}, when this screen was opened`} class="wide">
        <div class="charts">
          {chart("Rate", "rate", bits)}
          {chart("Delay, p99", "delay", time)}
          {chart("Delay, median", "median", time)}
        </div>
      </Section>
      <Past id={id} hasName={row.id !== row.class} down={live.data.down?.port} />
      {kind !== "hosts" && bounds && <Delays bounds={bounds} down={live.data.down} up={live.data.up} />}
      <Tins seen={totals.current} />
      {(kind === "hosts" || (addresses ?? []).length > 0) && (
        <Section title="Its flows among the heaviest" class="wide"><Flows flows={flows ?? []} /></Section>
      )}
      <Section title="Events of it" class="wide"><Events events={events ?? []} /></Section>
    </div>
  );
}

function Direction({ way, side, totals }: { way: Way; side: Side | null; totals: Totals | null | undefined }) {
  if (!side) {
    return <Section title={WAYS[way]} class={`port ${way}`}><p class="none">Nothing is known of this direction: it has no class there.</p></Section>;
  }
  const figure = (name: string, value: string) => <div><dt>{name}</dt><dd>{value}</dd></div>;
  return (
    <Section title={`${WAYS[way]}${totals ? ` (leaves ${totals.port})` : ""}`} class={`port ${way}`} aside={<Mark quality={side.quality} />}>
      <p class="big">
        <b class="delivered">{bits(side.rate)}</b> {side.ceil !== undefined && <span>of {bits(side.ceil)} ({percent(side.share)})</span>}
      </p>
      <Bar share={side.share} quality={side.quality} />
      <dl class="figures">
        {figure("delay here", `${time(side.median)}, p99 ${time(side.delay)}`)}
        {figure("round trip beyond", side.round_trip === undefined ? "not measured" : `${time(side.round_trip)}, p99 ${time(side.round_trip_p99)}, least ${time(side.round_trip_min)}`)}
        {figure("lost before / beyond", side.before === undefined && side.beyond === undefined ? "not measured" : `${percent(side.before)} / ${percent(side.beyond)}`)}
        {totals && figure("dropped here", `${packets(side.drops)} (${percent(side.dropped)})`)}
        {totals && figure("queued", `${plural(side.queued, "packet")}, ${scaled(side.queued_bytes, "B")}`)}
        {side.assured !== undefined && figure("assured", bits(side.assured))}
      </dl>
      {totals && (
        <Table label={`${WAYS[way]} since the start`} heads={["since the start", ""]} none="" rows={[
          ["sent", <span class="bytes">{count(totals.bytes)} bytes</span>],
          ["sent, in packets", plural(totals.packets, "packet")],
          ["dropped here", plural(totals.drops, "packet")],
          ...(totals.marks === null ? [] : [["marked (ECN)", plural(totals.marks, "packet")]]),
          ["waited for the rate", `${count(totals.overlimits)} times`],
          ...(totals.borrowed === null ? [] : [["borrowed", plural(totals.borrowed, "packet")]]),
          ...(totals.qdisc === null ? [] : [["qdisc", totals.qdisc]]),
        ]} />
      )}
    </Section>
  );
}

/** How many packets had which delay, since the start. */
function Delays({ bounds, down, up }: { bounds: number[]; down: Totals | null | undefined; up: Totals | null | undefined }) {
  const sides = [["down", down], ["up", up]] as const;
  const name = (step: number) => (step < bounds.length ? `≤ ${(bounds[step] ?? 0) / 1000}` : `> ${(bounds[bounds.length - 1] ?? 0) / 1000}`);
  return (
    <Section title="Delays here since the start" class="wide" aside={<span>share of packets by delay, ms</span>}>
      <div class="histograms">
        {sides.map(([way, totals]) => {
          const counts = totals?.delays ?? [];
          const all = counts.reduce((one, two) => one + two, 0);
          if (all === 0) return null;
          return (
            <table class="histogram" key={way}>
              <caption>{WAYS[way]}: {plural(all, "packet")}</caption>
              <tbody>
                {counts.map((packets, step) => (
                  <tr key={step}>
                    <th scope="row">{name(step)}</th>
                    <td>
                      <svg viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true"><rect class={way} width={(100 * packets) / all} height="8" /></svg>
                    </td>
                    <td>{percent(packets / all)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          );
        })}
      </div>
    </Section>
  );
}

function Tins({ seen }: { seen: { uptime: number; down?: Totals | null; up?: Totals | null }[] }) {
  const [was, is] = seen.length === 2 ? seen : [undefined, seen[0]];
  const rows = (["down", "up"] as Way[]).flatMap((way) =>
    (is?.[way]?.tins ?? []).map((tin, number) => {
      const old = was?.[way]?.tins[number];
      const seconds = (is?.uptime ?? 0) - (was?.uptime ?? 0);
      const arrived = perSecond(old?.sent_bytes, tin.sent_bytes, seconds);
      return [
        `${WAYS[way]}: ${tin.name}`,
        tin.threshold_rate > 0 ? bits(tin.threshold_rate * 8) : "–",
        bits(arrived === undefined || arrived === null ? undefined : arrived * 8),
        time(tin.avg_delay_us),
        time(tin.peak_delay_us),
        scaled(tin.backlog_bytes, "B"),
        count(tin.drops),
        count(tin.ecn_mark),
        count(tin.sparse_flows + tin.bulk_flows + tin.unresponsive_flows),
      ];
    }),
  );
  if (rows.length === 0) return null;
  return (
    <Section title="Tins" class="wide">
      <Table label="Tins" heads={["tin", "threshold", "arrives", "delay mean", "delay peak", "queued", "drops since the start", "marks", "flows"]} rows={rows} none="" />
    </Section>
  );
}

/** A series as `/api/history/series` gives it. */
interface Stored {
  port: string;
  ports: string[];
  what: string;
  unit: string;
  step_s: number;
  from: number;
  values: (number | null)[];
}

const WEEK_S = 7 * 86400;

/** What is drawn of the past: the series, its title, and how its values are written. */
const KEPT: { what: string; title: string; format: (value: Figure) => string }[] = [
  { what: "sent", title: "Rate", format: bits },
  { what: "delay-p99", title: "Delay, p99", format: (ms) => time(typeof ms === "number" ? ms * 1000 : ms) },
  { what: "round-trip-p99", title: "Round trip, p99", format: (ms) => time(typeof ms === "number" ? ms * 1000 : ms) },
  { what: "loss", title: "Loss", format: percent },
];

/** A week, where the server keeps one. `down` is the port of downloads. */
function Past({ id, hasName, down }: { id: string; hasName: boolean; down: string | undefined }) {
  const [series, setSeries] = useState<Stored[]>([]);
  useEffect(() => {
    setSeries([]);
    if (!hasName) return undefined;
    const abort = new AbortController();
    const now = Math.floor(Date.now() / 1000);
    const get = async (what: string, port?: string): Promise<Stored | undefined> => {
      const query = new URLSearchParams({ subject: id, what, from: String(now - WEEK_S), to: String(now), points: "336" });
      if (port !== undefined) query.set("port", port);
      const answer = await fetch(`api/history/series?${query}`, { signal: abort.signal });
      return answer.ok ? ((await answer.json()) as Stored) : undefined;
    };
    // Without a store there is no such path, and no section.
    void (async () => {
      const first = await get("sent");
      if (!first) return;
      const wanted = KEPT.flatMap(({ what }) => first.ports.map((port) => get(what, port)));
      const known = (one: Stored | undefined): one is Stored => one !== undefined && one.values.some((value) => value !== null);
      setSeries((await Promise.all(wanted)).filter(known));
    })().catch(() => undefined);
    return () => abort.abort();
  }, [id, hasName]);
  if (series.length === 0) return null;
  const line = ({ port, values }: Stored) =>
    port === down ? { label: "down", colour: "--down", values } : { label: "up", colour: "--up", values, dashed: true };
  return (
    <Section title="The last week" class="wide">
      <div class="charts">
        {KEPT.map(({ what, title, format }) => {
          const both = series.filter((one) => one.what === what);
          const [first] = both;
          if (!first) return null;
          const times = first.values.map((_, number) => first.from + number * first.step_s);
          return <Chart key={what} title={title} times={times} lines={both.map(line)} format={format} />;
        })}
      </div>
    </Section>
  );
}
