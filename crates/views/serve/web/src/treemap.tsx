// Sites and their subscribers as rectangles: the area is the rate, the colour the quality.
import { useEffect, useRef, useState } from "preact/hooks";
import { bits, plural } from "./format";
import { linkTo } from "./route";
import type { Tile } from "./types";

interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}

/**
 * Divides `box` among `areas`, which are in descending order, so that rectangles are as square as
 * rows of them can be (Bruls, Huizing, van Wijk: Squarified Treemaps, 2000).
 */
export function squarify(areas: number[], box: Box): Box[] {
  const total = areas.reduce((one, two) => one + two, 0);
  if (total <= 0 || box.width <= 0 || box.height <= 0) return areas.map(() => ({ ...box, width: 0, height: 0 }));
  const scale = (box.width * box.height) / total;
  const made: Box[] = [];
  let rest = { ...box };
  let first = 0;
  while (first < areas.length) {
    const side = Math.min(rest.width, rest.height);
    let end = first;
    let sum = 0;
    let worst = Infinity;
    while (end < areas.length) {
      const next = sum + (areas[end] ?? 0) * scale;
      const ratio = (area: number) => (area <= 0 ? Infinity : Math.max((side * side * area) / (next * next), (next * next) / (side * side * area)));
      const candidate = Math.max(ratio((areas[first] ?? 0) * scale), ratio((areas[end] ?? 0) * scale));
      if (end > first && candidate > worst) break;
      worst = candidate;
      sum = next;
      end += 1;
    }
    const depth = side > 0 ? sum / side : 0;
    const isUpright = rest.width >= rest.height;
    let offset = 0;
    for (let at = first; at < end; at += 1) {
      const length = depth > 0 ? ((areas[at] ?? 0) * scale) / depth : 0;
      made.push(
        isUpright
          ? { x: rest.x, y: rest.y + offset, width: depth, height: length }
          : { x: rest.x + offset, y: rest.y, width: length, height: depth },
      );
      offset += length;
    }
    rest = isUpright
      ? { ...rest, x: rest.x + depth, width: Math.max(rest.width - depth, 0) }
      : { ...rest, y: rest.y + depth, height: Math.max(rest.height - depth, 0) };
    first = end;
  }
  return made;
}

/** Above its members a site has a line with its name. */
const HEAD = 17;
/** Smaller ones have no text, in pixels. */
const TEXT = { width: 44, height: 15 };

const placed = (box: Box) => ({ left: `${box.x}px`, top: `${box.y}px`, width: `${Math.max(box.width - 1, 0)}px`, height: `${Math.max(box.height - 1, 0)}px` });

export function TreeMap({ tiles, height }: { tiles: Tile[]; height: number }) {
  const holder = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const node = holder.current;
    if (!node) return undefined;
    const sized = new ResizeObserver(() => setWidth(node.clientWidth));
    sized.observe(node);
    return () => sized.disconnect();
  }, []);
  const boxes = squarify(tiles.map((tile) => tile.rate ?? 0), { x: 0, y: 0, width, height });
  return (
    <div class="map" ref={holder} style={{ height: `${height}px` }}>
      {tiles.map((site, number) => {
        const box = boxes[number];
        if (!box || box.width < 3 || box.height < 3) return null;
        const hasHead = box.height > 40 && box.width > 60;
        const top = hasHead ? HEAD : 0;
        const members = site.members ?? [];
        const areas = [...members.map((one) => one.rate ?? 0), ...(site.others ? [site.others_rate ?? 0] : [])];
        const order = areas.map((area, place) => ({ area, place })).sort((one, two) => two.area - one.area);
        const inner = squarify(order.map(({ area }) => area), { x: 0, y: top, width: box.width, height: box.height - top });
        const name = site.name === "" ? "no site" : site.name;
        return (
          <div class="site" key={site.id} style={placed(box)}>
            {hasHead && <span class="label">{name} {bits(site.rate)}</span>}
            {order.map(({ place }, at) => {
              const space = inner[at];
              if (!space || space.width < 2 || space.height < 2) return null;
              const one = members[place];
              const hasText = space.width > TEXT.width && space.height > TEXT.height;
              if (!one) {
                return <span class="tile others" key="others" style={placed(space)} title={plural(site.others ?? 0, "other")}>{hasText ? plural(site.others ?? 0, "other") : ""}</span>;
              }
              const said = `${one.name}: ${bits(one.rate)}, ${one.quality}`;
              // What is smaller cannot be hit with a finger; the table has it.
              if (space.width < 26 || space.height < 26) {
                return <span class={`tile ${one.quality}`} key={one.id} style={placed(space)} title={said}>{hasText ? one.name : ""}</span>;
              }
              return (
                <a class={`tile ${one.quality}`} key={one.id} href={linkTo("subscribers", one.id)} style={placed(space)} title={said} aria-label={said}>
                  {hasText ? one.name : ""}
                </a>
              );
            })}
          </div>
        );
      })}
    </div>
  );
}
