// Small parts that all screens use.
import type { ComponentChildren } from "preact";
import type { Event, Quality, Row, Side, Way } from "./types";
import { clock } from "./format";
import { live } from "./live";

/** Shapes differ as well as colours. */
const SHAPES: Record<Quality, string> = {
  idle: "M2 7h10v2h-10z",
  good: "M7 2a5 5 0 1 0 .01 0z",
  fair: "M7 1l6 6-6 6-6-6z",
  poor: "M7 1l6.5 12h-13z",
  bad: "M1.5 1.5h11v11h-11z",
};

export function Mark({ quality, hidden }: { quality: Quality; hidden?: boolean }) {
  return (
    <span class={`mark ${quality}`}>
      <svg viewBox="0 0 14 14" width="11" height="11" aria-hidden="true">
        <path d={SHAPES[quality]} />
      </svg>
      <span class={hidden ? "unseen" : ""}>{quality}</span>
    </span>
  );
}

export const WAYS: Record<Way, string> = { down: "Download", up: "Upload" };

const reasonsOf = (side: Side | null): string[] => (side?.reasons ?? []).map((reason) => live.scale?.reasons[reason] ?? reason);

/** Why it may be complained about, and in which direction. */
export function why(row: Row): string {
  const [down, up] = [reasonsOf(row.down), reasonsOf(row.up)];
  const both = down.filter((reason) => up.includes(reason));
  const only = (reasons: string[]) => reasons.filter((reason) => !both.includes(reason)).join(", ");
  const said = [both.length > 0 ? `${both.join(", ")}` : "", only(down) && `down: ${only(down)}`, only(up) && `up: ${only(up)}`];
  return said.filter((text) => text !== "").join("; ");
}

export function Bar({ share, quality }: { share: number | null | undefined; quality: Quality }) {
  const width = Math.min(Math.max(share ?? 0, 0), 1) * 100;
  return (
    <svg class={`bar ${quality}`} viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">
      <rect class="all" width="100" height="8" />
      <rect class="used" width={width} height="8" />
    </svg>
  );
}

export function Section(props: { title: string; id?: string; aside?: ComponentChildren; class?: string; children: ComponentChildren }) {
  return (
    <section class={`card ${props.class ?? ""}`} aria-label={props.title} id={props.id}>
      <div class="head">
        <h2>{props.title}</h2>
        {props.aside && <div class="aside">{props.aside}</div>}
      </div>
      {props.children}
    </section>
  );
}

export function Events({ events }: { events: Event[] }) {
  if (events.length === 0) return <p class="none">Nothing has happened.</p>;
  return (
    <ol class="events" tabIndex={0} aria-label="Events, newest first">
      {events.map((event, number) => (
        <li key={`${event.time} ${number} ${event.text}`}>
          <time dateTime={new Date(event.time * 1000).toISOString()} title={new Date(event.time * 1000).toLocaleString()}>
            {event.is_before ? `before ${clock(event.time)}` : clock(event.time)}
          </time>{" "}
          <span>{event.text}</span>
        </li>
      ))}
    </ol>
  );
}

/** A small table whose first column names the row. */
export function Table(props: { label: string; heads: string[]; rows: (string | ComponentChildren)[][]; none: string; text?: boolean }) {
  if (props.rows.length === 0) return <p class="none">{props.none}</p>;
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={props.label}>
      <table class={props.text ? "small text" : "small"}>
        <thead>
          <tr>{props.heads.map((head) => <th scope="col" key={head}>{head}</th>)}</tr>
        </thead>
        <tbody>
          {props.rows.map((row, number) => (
            <tr key={number}>
              {row.map((cell, column) => (column === 0 ? <th scope="row" key={column}>{cell}</th> : <td key={column}>{cell}</td>))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
