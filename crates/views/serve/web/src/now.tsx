// The first screen: is it good right now, and who suffers.
import { Fragment } from "preact";
import { Chart, HeatMap } from "./charts";
import { bits, count, megabits, millis, packets, percent, plural, time } from "./format";
import { type Live, useScreen } from "./live";
import { Bar, Events, Mark, Section, WAYS, why } from "./parts";
import { linkTo } from "./route";
import { TreeMap } from "./treemap";
import type { Counts, Direction, Figure, Kind, Quality, Row, Side } from "./types";

export function Now({ span }: { span: number }) {
  const live = useScreen(`view=now&span=${span}`);
  const { directions, counts, map, events, order } = live.data;
  if (!directions) return <p class="none">Waiting for the first figures.</p>;
  // Download first, as people say it.
  const ports = [...directions].sort((one, two) => one.way.localeCompare(two.way));
  const worst = (order ?? []).flatMap((id) => live.rows.get(id) ?? []);
  const hasClasses = (counts?.subscribers ?? 0) > 0;
  return (
    <div class={`now ${directions.length === 1 ? "single" : ""}`}>
      {counts && <Suffering worst={worst} counts={counts} />}
      {ports.map((one) => <Port key={one.port} one={one} live={live} span={span} />)}
      {hasClasses && (
        <Section title="Sites" class="sites" aside={<span>area: rate of both directions; colour: quality</span>}>
          {map && map.length > 0 ? <TreeMap tiles={map} height={214} /> : <p class="none">Nobody sends anything.</p>}
        </Section>
      )}
      <Section title="Events" class="happened" aside={<a href="#/box">all</a>}>
        <Events events={events ?? []} />
      </Section>
    </div>
  );
}

const STEPS: Quality[] = ["bad", "poor", "fair", "good", "idle"];

function Suffering({ worst, counts }: { worst: Row[]; counts: Counts }) {
  const isOfHosts = counts.subscribers === 0;
  const kind: Kind = isOfHosts ? "hosts" : "subscribers";
  const active = counts.subscribers - counts.by_quality.idle;
  const bad = counts.by_quality.fair + counts.by_quality.poor + counts.by_quality.bad;
  const verdict = isOfHosts
    ? plural(counts.hosts, "host that sends most", "hosts that send most")
    : active === 0
      ? `none of ${plural(counts.subscribers, "subscriber")} is active`
      : bad === 0
        ? `all of ${plural(active, "active subscriber")} are good`
        : `${count(bad)} of ${plural(active, "active subscriber")}`;
  return (
    <Section title={isOfHosts ? "Heaviest hosts" : "Who suffers"} class="worst" aside={<span id="verdict">{verdict}</span>}>
      {!isOfHosts && (
        <p class="steps">
          {STEPS.map((step) => (
            <span key={step}><Mark quality={step} /> <b>{count(counts.by_quality[step])}</b></span>
          ))}
        </p>
      )}
      {worst.length === 0
        ? <p class="none">Nobody has long delays, drops or losses, or is at a ceiling.</p>
        : (
          <div class="scroll" tabIndex={0} role="region" aria-label="The worst">
            <table class="small list">
              <thead>
                <tr>
                  <th scope="col">{isOfHosts ? "host" : "subscriber"}</th>
                  <th scope="col">delay p99, ms<br />down / up</th>
                  <th scope="col">Mbit/s<br />down / up</th>
                </tr>
              </thead>
              <tbody>
                {worst.map((row) => (
                  <Fragment key={row.id}>
                    <tr>
                      <th scope="row"><Mark quality={row.quality} hidden /> <a href={linkTo(kind, row.id)}>{row.name}</a></th>
                      <td>{pair(row, (side) => side.delay, millis)}</td>
                      <td>{pair(row, (side) => side.rate, megabits)}</td>
                    </tr>
                    {why(row) !== "" && <tr><td class="why" colSpan={3}>{why(row)}</td></tr>}
                  </Fragment>
                ))}
              </tbody>
            </table>
          </div>
        )}
      <p class="more"><a href={`#/${kind}`}>{isOfHosts ? "All hosts and flows" : "All subscribers"}</a></p>
    </Section>
  );
}

function pair(row: Row, of: (side: Side) => Figure, format: (value: Figure) => string): string {
  const text = (side: Side | null) => format(side ? of(side) : undefined);
  return `${text(row.down)} / ${text(row.up)}`;
}

function Port({ one, live, span }: { one: Direction; live: Live; span: number }) {
  const share = one.limit && one.delivered !== null && one.delivered !== undefined ? one.delivered / one.limit : undefined;
  const { times } = live.recent;
  const of = (what: string) => live.recent.series.filter((line) => line.device === one.port && line.what === what);
  const line = (what: string, name: string, label: string, colour: string, dashed = false) => ({
    label,
    colour,
    dashed,
    values: of(what).find((series) => series.name === name)?.values ?? times.map(() => null),
  });
  const colour = `--${one.way}`;
  const heat = live.heat.ports.find((port) => port.port === one.port);
  const hasTrips = of("round trip").length > 0;
  return (
    <Section
      title={`${WAYS[one.way]} (leaves ${one.port})`}
      class={`port ${one.way}`}
      aside={<><Mark quality={one.quality} />{one.no_carrier && <b class="alarm">NO CARRIER</b>}</>}
    >
      <p class="big">
        <b class="delivered">{bits(one.delivered)}</b>{" "}
        {one.limit ? <span>of {bits(one.limit)} ({percent(share)})</span> : <span>no limit set</span>}
      </p>
      <Bar share={share} quality={one.quality} />
      <dl class="figures">
        <div><dt>delay here</dt><dd>{time(one.median)}, p99 <b>{time(one.delay)}</b></dd></div>
        {one.round_trip !== null && one.round_trip !== undefined &&
          <div><dt>round trip beyond</dt><dd>{time(one.round_trip)}, p99 {time(one.round_trip_p99)}</dd></div>}
        {one.beyond !== null && one.beyond !== undefined &&
          <div><dt>lost before / beyond</dt><dd>{percent(one.before)} / {percent(one.beyond)}</dd></div>}
        <div><dt>dropped here</dt><dd>{packets(one.drops)}</dd></div>
        <div><dt>queued</dt><dd>{plural(one.queued, "packet")}</dd></div>
      </dl>
      <Chart height={72} title="Rate" times={times} span={span} format={bits}
        lines={[line("delivered", "", "delivered", colour), line("limit", "", "limit", "--limit", true)]} />
      <Chart height={72} title="Delay here" times={times} span={span} format={time}
        lines={[line("delay", "median", "median", colour), line("delay", "p99", "p99", "--high")]} />
      {hasTrips && <Chart height={72} title="Round trip beyond" times={times} span={span} format={time}
        lines={[line("round trip", "median", "median", colour), line("round trip", "p99", "p99", "--high")]} />}
      {heat && <HeatMap title="Delay over time" times={live.heat.times} columns={heat.columns} bounds={live.heat.bounds} span={span} />}
    </Section>
  );
}
