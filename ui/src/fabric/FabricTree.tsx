// SPDX-License-Identifier: Apache-2.0
import { useCallback, useMemo } from "react";

import { Bar } from "../components/Bar";
import { GPUStrip } from "../components/GPUStrip";
import type { Column } from "../components/VirtualGrid";
import { VirtualGrid } from "../components/VirtualGrid";
import { useParams } from "../url";
import { nodeNote, nodeShade, nodeSign, shadeOf } from "./shade";
import type { Domain, Part } from "./tree";
import { visibleParts } from "./tree";

interface Props {
  root: Domain;
  size: number;
  sizes: number[];
  onOpen: (part: Part) => void;
}

/** The fabric as `nvtopo topology` prints it: domains can be folded, nodes opened. */
export function FabricTree({ root, size, sizes, onOpen }: Props) {
  const [params, setParams] = useParams();
  const fold = params.get("fold") ?? "";
  const folded = useMemo(() => new Set(fold.split(",").filter(Boolean)), [fold]);
  const rows = useMemo(() => visibleParts(root, folded), [root, folded]);

  const setFolded = useCallback(
    (path: string, yes: boolean) => {
      const next = new Set(folded);
      if (yes) next.add(path);
      else next.delete(path);
      setParams({ fold: [...next].join(",") }, true);
    },
    [folded, setParams],
  );
  const open = useCallback(
    (part: Part) => (part.kind === "domain" && part.path ? setFolded(part.path, !folded.has(part.path)) : onOpen(part)),
    [folded, setFolded, onOpen],
  );
  const all = sizes.join();
  const columns = useMemo(() => columnsFor(size, all.split(",").map(Number), folded), [size, all, folded]);

  return (
    <VirtualGrid
      label={`Fabric, ${root.totals.nodes} nodes`}
      columns={columns}
      rows={rows}
      rowKey={(p) => p.path}
      onOpen={open}
      treeRow={(p) =>
        p.kind === "domain" ? { level: p.depth - root.depth + 1, expanded: !folded.has(p.path) } : { level: p.depth - root.depth + 1 }
      }
      onSide={(p, side) => p.kind === "domain" && p.path && setFolded(p.path, side < 0)}
    />
  );
}

function columnsFor(size: number, sizes: number[], folded: ReadonlySet<string>): Column<Part>[] {
  return [
    {
      key: "name",
      title: "Domain or node",
      width: "minmax(200px, 2fr)",
      narrow: "minmax(130px, 2fr)",
      cell: (p) => <Name part={p} folded={folded} />,
    },
    { key: "gpus", title: "GPUs", width: "minmax(150px, 1fr)", narrow: "minmax(70px, 1fr)", cell: (p) => <Held part={p} /> },
    { key: "used", title: "Used", width: "90px", right: true, cell: ({ totals: t }) => `${t.used}/${t.gpus}` },
    ...sizes.map((s): Column<Part> => ({
      key: `x${s}`,
      title: `×${s}`,
      width: "84px",
      ...(s === size ? { narrow: "88px" } : {}),
      right: true,
      cell: (p) => <Free part={p} size={s} current={s === size} />,
    })),
    { key: "note", title: "Note", width: "minmax(100px, 2fr)", cell: (p) => <Note part={p} /> },
  ];
}

function Name({ part, folded }: { part: Part; folded: ReadonlySet<string> }) {
  const sign = part.kind === "node" ? "" : folded.has(part.path) ? "▸ " : "▾ ";
  return (
    <span style={{ paddingLeft: 14 * part.depth }} title={part.name} className={part.kind === "domain" ? "domain-name" : ""}>
      <span aria-hidden="true">{sign}</span>
      {part.name} {part.kind === "domain" && part.level !== part.name && <span className="dim">{part.level}</span>}
    </span>
  );
}

function Held({ part }: { part: Part }) {
  if (part.kind === "node" && part.node.gpus <= 16) return <GPUStrip states={part.node.states} />;
  const { used, bad, gpus } = part.totals;
  return (
    <Bar
      total={gpus}
      parts={[
        { name: "used", value: used, kind: "used" },
        { name: "bad", value: bad, kind: "bad" },
      ]}
    />
  );
}

function Free({ part, size, current }: { part: Part; size: number; current: boolean }) {
  const free = part.totals.slots[size] ?? 0;
  const capacity = part.totals.capacity[size] ?? 0;
  if (part.kind === "node") {
    return <span className={current ? `swatch shade-${nodeShade(part.node, size)}` : ""}>{nodeSign(part.node, size)}</span>;
  }
  return <span className={current ? `swatch shade-${shadeOf(free, capacity)}` : ""}>{`${free}/${capacity}`}</span>;
}

function Note({ part }: { part: Part }) {
  if (part.kind === "domain") return <span className="dim">{part.totals.nodes} nodes</span>;
  const { model } = part.node;
  const note = nodeNote(part.node);
  return (
    <span className={note ? "" : "dim"} title={note || model}>
      {note || model}
    </span>
  );
}
