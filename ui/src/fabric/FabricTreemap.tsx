// SPDX-License-Identifier: Apache-2.0
import { useElementSize } from "@mantine/hooks";
import type { KeyboardEvent } from "react";
import { memo, useId, useMemo, useState } from "react";

import type { NodeSum } from "../api";
import { GPUSign, stripLabel } from "../components/GPUStrip";
import { nearest, sideOf } from "./nearest";
import { nodeNote, nodeShade, nodeSign, shortName } from "./shade";
import type { Domain, Part, Target } from "./tree";
import type { Tile } from "./treemap";
import { layoutTreemap, sameShape } from "./treemap";

interface Props {
  root: Domain;
  size: number;
  onOpen: (target: Target) => void;
}

/** A tile for each node in the tiles of its domains. One stop of the Tab key; the arrows move in it. */
export function FabricTreemap({ root, size, onOpen }: Props) {
  const { ref, width, height } = useElementSize<HTMLDivElement>();
  const id = useId();
  const shape = useShape(root);
  const tiles = useMemo(() => (width > 0 ? layoutTreemap(shape, width, Math.max(height, 300)) : []), [shape, width, height]);
  const parts = useMemo(() => byPath(root), [root]);
  const [active, setActive] = useState("");
  const at = Math.max(
    0,
    tiles.findIndex((t) => t.part.path === active),
  );
  const current = tiles[at];

  const onKeyDown = (e: KeyboardEvent) => {
    const side = sideOf(e.key);
    if (side && current) {
      const next = nearest(tiles, current, side);
      if (next) setActive(next.part.path);
    } else if (e.key === "Enter" && current) onOpen(current.part);
    else return;
    e.preventDefault();
  };

  return (
    <div
      ref={ref}
      className="treemap"
      role="listbox"
      tabIndex={0}
      aria-label={`Treemap of ${root.totals.nodes} nodes`}
      aria-activedescendant={current ? `${id}-${current.part.path}` : undefined}
      onKeyDown={onKeyDown}
    >
      {tiles.map((t) => {
        const part = parts.get(t.part.path) ?? t.part;
        return (
          <TileView
            key={part.path}
            id={`${id}-${part.path}`}
            tile={t}
            size={size}
            node={part.kind === "node" ? part.node : undefined}
            domain={part.kind === "domain" ? domainSigns(part, size) : ""}
            active={t === current}
            onOpen={onOpen}
          />
        );
      })}
    </div>
  );
}

/** The tree as it was when it last had another shape, so that the layout is computed only then. */
function useShape(root: Domain): Domain {
  const [shape, setShape] = useState(root);
  const same = useMemo(() => sameShape(shape, root), [shape, root]);
  if (!same) setShape(root);
  return same ? shape : root;
}

function byPath(root: Domain): Map<string, Part> {
  const all = new Map<string, Part>();
  const walk = (p: Part) => {
    all.set(p.path, p);
    if (p.kind === "domain") p.children.forEach(walk);
  };
  walk(root);
  return all;
}

function domainSigns(d: Domain, size: number): string {
  return `${d.totals.slots[size] ?? 0}/${d.totals.capacity[size] ?? 0}`;
}

interface TileProps {
  id: string;
  tile: Tile;
  size: number;
  node: NodeSum | undefined; // as it is now; undefined for a domain
  domain: string; // free and all slots of a domain
  active: boolean;
  onOpen: (target: Target) => void;
}

// Rendered again only if its node is another object, or its domain has other numbers.
const TileView = memo(function TileView({ id, tile, size, node, domain, active, onOpen }: TileProps) {
  const { part, x, y, width, height } = tile;
  const { shade, sign, label } = node ? nodeFace(node, size) : domainFace(part, domain, size);
  return (
    // Keys are handled by the map, which has the focus.
    // eslint-disable-next-line jsx-a11y/click-events-have-key-events, jsx-a11y/interactive-supports-focus
    <div
      id={id}
      role="option"
      aria-selected={active}
      aria-label={label}
      title={label}
      className={`tile shade-${shade}${active ? " tile-active" : ""}`}
      style={{ left: x, top: y, width, height }}
      onClick={() => onOpen(part)}
    >
      {node ? (
        <NodeInside node={node} sign={sign} width={width} height={height} />
      ) : (
        <span className="tile-title">
          {part.name} {width > 110 && <span className="dim">{sign}</span>}
        </span>
      )}
    </div>
  );
});

function NodeInside({ node, sign, width, height }: { node: NodeSum; sign: string; width: number; height: number }) {
  const room = width - 6;
  const fits = room >= 7 * node.name.length;
  // On a tall tile a long name has up to three lines.
  const wraps = height >= 84 && room >= 60 && 3 * room >= 8 * node.name.length;
  const name = fits || wraps ? node.name : shortName(node.name);
  if (room < 7 * shortName(node.name).length || height < 34) return <span className="tile-only">{sign}</span>;
  return (
    <>
      <span className={fits ? "tile-name" : "tile-name tile-wrapped"}>{name}</span> <span className="tile-sign">{sign}</span>
      {height >= 84 && width >= 66 && (
        <span className="strip tile-strip">
          {[...node.states].map((letter, i) => (
            <GPUSign key={i} letter={letter} />
          ))}
        </span>
      )}
    </>
  );
}

// A label has what is written on the tile.

function nodeFace(n: NodeSum, size: number) {
  const sign = nodeSign(n, size);
  const slots = n.noGraph || n.closed ? "" : `of ${n.capacity[size] ?? 0} slots of ${size} free`;
  const why = [slots, nodeNote(n)].filter(Boolean).join("; ");
  return { shade: nodeShade(n, size), sign, label: `${n.name} ${sign} ${why}; ${stripLabel(n.states)}${n.model ? `; ${n.model}` : ""}` };
}

function domainFace(part: Part, sign: string, size: number) {
  const level = part.kind === "domain" ? part.level : "";
  return { shade: "domain", sign, label: `${part.name} ${sign} slots of ${size} free, ${level} of ${part.totals.nodes} nodes` };
}
