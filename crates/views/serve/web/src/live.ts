// The one stream of events that the page has: for the screen that it shows, while it can be seen.
import { useEffect, useReducer } from "preact/hooks";
import type { Heat, Parts, Recent, Row, Scale, Standing } from "./types";

/** After so many intervals without a message, figures are old. */
const PATIENCE = 3;

export class Live {
  /** The parts of the screen. */
  data: Parts = {};
  rows = new Map<string, Row>();
  recent: Recent = { times: [], series: [] };
  heat: Heat = { bounds: [], times: [], ports: [] };
  /** Of the last screen that said it. */
  standing: Standing | undefined;
  scale: Scale | undefined;
  /** When the last message came, in milliseconds. */
  heard = 0;
  /** When the server's last snapshot was taken, in seconds since 1970. */
  time = 0;
  isPaused = false;
  /** The server does not answer. */
  isLost = false;
  private query = "";
  private source: EventSource | undefined;
  private listeners = new Set<() => void>();

  constructor() {
    document.addEventListener("visibilitychange", () => this.connect());
    setInterval(() => this.check(), 1000);
  }

  /** Shows the screen that `query` is for, and nothing of the one before. */
  show(query: string): void {
    if (query === this.query) return;
    this.query = query;
    this.clear();
    this.connect();
  }

  pause(): void {
    this.isPaused = !this.isPaused;
    this.connect();
    this.tell();
  }

  listen(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  private clear(): void {
    this.data = {};
    this.rows.clear();
    this.forgetCharts();
  }

  private forgetCharts(): void {
    this.recent = { times: [], series: [] };
    this.heat = { bounds: [], times: [], ports: [] };
  }

  private connect(): void {
    this.source?.close();
    this.source = undefined;
    if (document.hidden || this.isPaused || this.query === "") return;
    // A new stream begins with all points that the screen shows.
    let isFirst = true;
    const source = new EventSource(`api/stream?${this.query}`);
    source.onmessage = (event: MessageEvent<string>) => {
      if (isFirst) this.forgetCharts();
      isFirst = false;
      this.isLost = false;
      this.take(JSON.parse(event.data) as Parts);
    };
    source.onerror = () => {
      // The server ends each connection after some minutes, and the browser opens another one.
      if (source.readyState === EventSource.CLOSED) {
        this.isLost = true;
        this.tell();
        setTimeout(() => source === this.source && this.connect(), 2000);
      }
    };
    this.source = source;
  }

  private take(message: Parts): void {
    const { rows, recent, heat, ...parts } = message;
    Object.assign(this.data, parts);
    if (parts.standing) this.standing = parts.standing;
    if (parts.scale) this.scale = parts.scale;
    if (parts.time) this.time = parts.time;
    for (const [id, row] of Object.entries(rows ?? {})) this.rows.set(id, row);
    if (parts.order) {
      const shown = new Set(parts.order);
      for (const id of this.rows.keys()) if (!shown.has(id)) this.rows.delete(id);
    }
    if (recent) this.addRecent(recent);
    if (heat) this.addHeat(heat);
    this.heard = Date.now();
    this.tell();
  }

  private addRecent(next: Recent): void {
    const known = this.recent.times.length;
    this.recent.times.push(...next.times);
    const key = (one: { device: string; what: string; name: string }) => `${one.device}\n${one.what}\n${one.name}`;
    const all = new Map(this.recent.series.map((one) => [key(one), one]));
    for (const one of next.series) {
      let mine = all.get(key(one));
      if (!mine) {
        mine = { ...one, values: new Array<number | null>(known).fill(null) };
        all.set(key(one), mine);
        this.recent.series.push(mine);
      }
      mine.values.push(...one.values);
    }
    const length = this.recent.times.length;
    for (const one of this.recent.series) while (one.values.length < length) one.values.push(null);
    const old = this.old(this.recent.times);
    if (old > 0) {
      this.recent.times.splice(0, old);
      for (const one of this.recent.series) one.values.splice(0, old);
    }
  }

  private addHeat(next: Heat): void {
    const known = this.heat.times.length;
    this.heat.bounds = next.bounds;
    this.heat.times.push(...next.times);
    const none = () => new Array<number>(next.bounds.length + 1).fill(0);
    for (const port of next.ports) {
      let mine = this.heat.ports.find((one) => one.port === port.port);
      if (!mine) {
        mine = { ...port, columns: Array.from({ length: known }, none) };
        this.heat.ports.push(mine);
      }
      mine.columns.push(...port.columns);
    }
    const length = this.heat.times.length;
    for (const port of this.heat.ports) while (port.columns.length < length) port.columns.push(none());
    const old = this.old(this.heat.times);
    if (old > 0) {
      this.heat.times.splice(0, old);
      for (const port of this.heat.ports) port.columns.splice(0, old);
    }
  }

  /** How many points the charts no longer show. */
  private old(times: number[]): number {
    const span = Number(new URLSearchParams(this.query).get("span") ?? 300);
    const newest = times[times.length - 1] ?? 0;
    const first = times.findIndex((at) => at > newest - span);
    return Math.max(first, 0);
  }

  /** Whether the figures shown are present ones. */
  get isFresh(): boolean {
    const interval = this.data.interval ?? 1;
    return !this.isLost && Date.now() - this.heard < 1000 * (PATIENCE * interval + 2);
  }

  private check(): void {
    // What was fresh may not be any more, and nothing came that would say so.
    if (!this.isFresh && this.heard > 0 && !document.hidden) this.tell();
  }

  private tell(): void {
    for (const listener of this.listeners) listener();
  }
}

export const live = new Live();

/** Draws the component again with each message. */
export function useLive(): Live {
  const [, draw] = useReducer((count: number) => count + 1, 0);
  useEffect(() => live.listen(() => draw(undefined as never)), []);
  return live;
}

/** The same, of the screen that `query` is for. */
export function useScreen(query: string): Live {
  useEffect(() => live.show(query), [query]);
  return useLive();
}
