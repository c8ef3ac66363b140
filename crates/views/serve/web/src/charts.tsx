// Charts of the last minutes, and the map of delays over time.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { clockShort, plural } from "./format";

export interface Line {
  label: string;
  values: (number | null)[];
  /** A variable of the style sheet. */
  colour: string;
  dashed?: boolean;
}

const styled = (name: string): string => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** A chart shows at least so many seconds. */
const LEAST_S = 30;

/** Draws anew when the colours of the system change. */
const scheme = matchMedia("(prefers-color-scheme: dark)");

export interface ChartProps {
  title: string;
  times: number[];
  lines: Line[];
  format: (value: number | null | undefined) => string;
  height?: number;
  /** The time shown, in seconds. */
  span?: number;
}

export function Chart({ title, times, lines, format, height = 92, span }: ChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const names = lines.map((line) => line.label).join("\n");
  useEffect(() => {
    const holder = box.current;
    if (!holder) return undefined;
    const make = () => {
      plot.current?.destroy();
      const [front, grid] = [styled("--dim"), styled("--line")];
      const axis = { stroke: front, grid: { stroke: grid, width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
      plot.current = new uPlot(
        {
          width: Math.max(holder.clientWidth, 120),
          height,
          padding: [6, 4, 0, 0],
          legend: { show: false },
          cursor: { show: false },
          scales: {
            x: { range: (_plot, least, most) => (span === undefined ? [Math.min(least, most - LEAST_S), most] : [most - span, most]) },
            y: { range: (_plot, _least, most) => [0, most > 0 ? most * 1.08 : 1] },
          },
          axes: [
            { ...axis, size: 20, gap: 2, space: 70, values: (_plot, values) => values.map(clockShort) },
            { ...axis, size: 66, gap: 4, space: 16, values: (_plot, values) => values.map((value) => format(value)) },
          ],
          series: [
            {},
            ...lines.map((line) => ({
              label: line.label,
              stroke: styled(line.colour),
              width: 1.5,
              dash: line.dashed ? [5, 4] : undefined,
              points: { show: false },
            })),
          ],
        },
        [times, ...lines.map((line) => line.values)] as uPlot.AlignedData,
        holder,
      );
    };
    make();
    const sized = new ResizeObserver(() => {
      const width = holder.clientWidth;
      if (plot.current && width > 0 && Math.abs(width - plot.current.width) > 1) plot.current.setSize({ width, height });
    });
    sized.observe(holder);
    scheme.addEventListener("change", make);
    return () => {
      sized.disconnect();
      scheme.removeEventListener("change", make);
      plot.current?.destroy();
      plot.current = null;
    };
  }, [names, height, span]);
  useEffect(() => {
    plot.current?.setData([times, ...lines.map((line) => line.values)] as uPlot.AlignedData);
  });
  const last = (line: Line) => line.values[line.values.length - 1];
  return (
    <figure class="chart">
      <figcaption>
        <span class="title">{title}</span>
        {lines.map((line) => (
          <span class="key" key={line.label}>
            <svg width="16" height="8" aria-hidden="true">
              <line x1="0" x2="16" y1="4" y2="4" style={{ stroke: `var(${line.colour})` }} stroke-width="2" stroke-dasharray={line.dashed ? "4 3" : undefined} />
            </svg>
            {line.label} <b>{format(last(line))}</b>
          </span>
        ))}
      </figcaption>
      <div ref={box} aria-hidden="true" />
    </figure>
  );
}

/** How many columns the map has at most: more cannot be told apart. */
const COLUMNS = 150;
const ROW_PX = 6;

/** Time from left to right, delay from below; the darker, the more packets of that time. */
export function HeatMap({ title, times, columns, bounds, span }: { title: string; times: number[]; columns: number[][]; bounds: number[]; span: number }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const rows = bounds.length + 1;
  useEffect(() => {
    const to = canvas.current?.getContext("2d");
    if (!to || !canvas.current) return;
    const [width, height] = [COLUMNS, rows];
    canvas.current.width = width;
    canvas.current.height = height;
    const newest = times[times.length - 1] ?? 0;
    const sums = Array.from({ length: width }, () => new Array<number>(rows).fill(0));
    times.forEach((at, number) => {
      const place = Math.floor(((at - (newest - span)) / span) * width);
      const sum = sums[Math.min(Math.max(place, 0), width - 1)];
      columns[number]?.forEach((packets, step) => {
        if (sum) sum[step] = (sum[step] ?? 0) + packets;
      });
    });
    const isDark = scheme.matches;
    sums.forEach((sum, x) => {
      const all = sum.reduce((one, two) => one + two, 0);
      sum.forEach((packets, step) => {
        if (packets === 0) return;
        const share = Math.max(Math.sqrt(packets / all), 0.12);
        to.fillStyle = heat(share, isDark);
        to.fillRect(x, rows - 1 - step, 1, 1);
      });
    });
  });
  // What the picture says, in words.
  const sum = new Array<number>(rows).fill(0);
  for (const column of columns) column.forEach((packets, step) => (sum[step] = (sum[step] ?? 0) + packets));
  const most = sum.indexOf(Math.max(...sum));
  const all = sum.reduce((one, two) => one + two, 0);
  const ms = (bound: number | undefined) => String((bound ?? 0) / 1000);
  const range = most === 0 ? `at most ${ms(bounds[0])} ms` : most < bounds.length ? `${ms(bounds[most - 1])} to ${ms(bounds[most])} ms` : `more than ${ms(bounds[bounds.length - 1])} ms`;
  const short = all === 0 ? "no packet left" : `most often ${range}`;
  const said = all === 0 ? short : `${plural(all, "packet")}, ${short}`;
  const marks = bounds.map((bound, number) => ({ bound, number })).filter(({ bound }) => [1000, 10_000, 100_000].includes(bound));
  return (
    <figure class="chart heat">
      <figcaption>
        <span class="title">{title}</span>
        <span class="key">{short}</span>
      </figcaption>
      <div class="picture" style={{ height: `${rows * ROW_PX}px` }}>
        <div class="marks" aria-hidden="true">
          {marks.map(({ bound, number }) => (
            <span key={bound} style={{ bottom: `${((number + 1) / rows) * 100}%` }}>{bound / 1000} ms</span>
          ))}
        </div>
        <canvas ref={canvas} role="img" aria-label={`${title}: ${said}`} />
      </div>
    </figure>
  );
}

/** From what is nearly the background to dark blue, or to a light yellow on dark ground. */
function heat(share: number, isDark: boolean): string {
  const light: [number, number, number][] = [[222, 235, 247], [107, 174, 214], [8, 69, 148], [3, 30, 74]];
  const dark: [number, number, number][] = [[28, 44, 66], [38, 104, 142], [88, 190, 160], [253, 231, 120]];
  const scale = isDark ? dark : light;
  const at = Math.min(Math.max(share, 0), 1) * (scale.length - 1);
  const low = Math.min(Math.floor(at), scale.length - 2);
  const [one, two] = [scale[low], scale[low + 1]];
  if (!one || !two) return "transparent";
  const mixed = one.map((from, channel) => Math.round(from + ((two[channel] ?? from) - from) * (at - low)));
  return `rgb(${mixed.join(",")})`;
}
