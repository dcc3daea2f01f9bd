// SPDX-License-Identifier: Apache-2.0
import { useElementSize } from "@mantine/hooks";
import type { KeyboardEvent } from "react";
import { memo, useId, useMemo, useState } from "react";

import { GPUStrip, stripLabel } from "../components/GPUStrip";
import { nearest, sideOf } from "./nearest";
import type { Shade } from "./shade";
import { nodeShade, nodeSign, shadeOf } from "./shade";
import type { Domain, Part } from "./tree";
import { layoutTreemap, sameShape } from "./treemap";

interface Props {
  root: Domain;
  size: number;
  onOpen: (part: Part) => void;
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
  const open = useMemo(
    () => (path: string) => {
      const p = parts.get(path);
      if (p) onOpen(p);
    },
    [parts, onOpen],
  );

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
          <Tile
            key={part.path}
            id={`${id}-${part.path}`}
            path={part.path}
            name={part.name}
            x={t.x}
            y={t.y}
            width={t.width}
            height={t.height}
            {...faceOf(part, size)}
            active={t === current}
            open={open}
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

interface Face {
  shade: Shade | "domain";
  sign: string;
  states: string;
  label: string;
}

function faceOf(part: Part, size: number): Face {
  const free = part.totals.slots[size] ?? 0;
  const capacity = part.totals.capacity[size] ?? 0;
  const slots = `${free} of ${capacity} slots of ${size} free`;
  if (part.kind === "domain") {
    return {
      shade: "domain",
      sign: `${free}/${capacity}`,
      states: "",
      label: `${part.level} ${part.name}, ${part.totals.nodes} nodes, ${slots}`,
    };
  }
  const { node } = part;
  const why = node.noGraph || node.closed;
  return {
    shade: node.noGraph || node.closed ? nodeShade(node, size) : shadeOf(free, capacity),
    sign: nodeSign(node, size),
    states: node.states,
    label: `${node.name}: ${why || slots}; ${stripLabel(node.states)}${node.model ? `; ${node.model}` : ""}`,
  };
}

interface TileProps extends Face {
  id: string;
  path: string;
  name: string;
  x: number;
  y: number;
  width: number;
  height: number;
  active: boolean;
  open: (path: string) => void;
}

const Tile = memo(function Tile({ id, path, name, x, y, width, height, shade, sign, states, label, active, open }: TileProps) {
  const named = width >= 74 && height >= 34;
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
      style={{ transform: `translate(${x}px, ${y}px)`, width, height }}
      onClick={() => open(path)}
    >
      {shade === "domain" ? (
        <span className="tile-title">
          {name} {width > 110 && <span className="dim">{sign}</span>}
        </span>
      ) : (
        <>
          {named && <span className="tile-name">{name}</span>}
          <span className={named ? "tile-sign" : "tile-only"}>{sign}</span>
          {named && height >= 60 && width >= 15 * states.length && <GPUStrip states={states} />}
        </>
      )}
    </div>
  );
});
