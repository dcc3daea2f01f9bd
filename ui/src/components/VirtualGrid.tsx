// SPDX-License-Identifier: Apache-2.0
import { useVirtualizer } from "@tanstack/react-virtual";
import type { CSSProperties, KeyboardEvent, ReactNode } from "react";
import { memo, useCallback, useId, useRef, useState } from "react";

import { isTyping, stepOf } from "../keyboard";

export interface Column<T> {
  key: string;
  title: string;
  width: string; // of a track of a CSS grid
  narrow?: string; // the same on a narrow screen, where columns without it are not shown
  right?: boolean;
  cell: (item: T) => ReactNode;
}

interface Props<T> {
  label: string;
  columns: Column<T>[]; // the same array as long as it shows the same, so that rows are not rendered again
  rows: T[];
  rowKey: (item: T) => string;
  onOpen: (item: T) => void;
  selected?: string;
  /** In a tree: how deep a row is, from 1, and whether what is below it is shown. */
  treeRow?: (item: T) => { level: number; expanded?: boolean };
  /** In a tree: the arrow to the left (-1) or the right. */
  onSide?: (item: T, side: number) => void;
}

const rowHeight = 36;

/**
 * A list of any length: only the rows in sight are in the document. It is one stop of the Tab key;
 * j, k and the arrows move in it, Enter opens a row.
 */
export function VirtualGrid<T>(props: Props<T>) {
  const { label, columns, rows, rowKey, onOpen, selected, treeRow, onSide } = props;
  const id = useId();
  const scroll = useRef<HTMLDivElement>(null);
  const [active, setActive] = useState({ key: "", at: 0 });
  // Its functions cannot be memoised by React's compiler, which is not used here.
  // eslint-disable-next-line react-hooks/incompatible-library
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroll.current,
    estimateSize: () => rowHeight,
    overscan: 8,
  });

  // The active row stays the same item while rows come and go; if it goes, its place stays.
  const found = rows.findIndex((r) => rowKey(r) === active.key);
  const at = Math.max(0, found >= 0 ? found : Math.min(active.at, rows.length - 1));
  const activeRow = rows[at];

  const activate = useCallback((key: string, index: number) => setActive({ key, at: index }), []);
  const onKeyDown = (e: KeyboardEvent) => {
    if (isTyping(e.nativeEvent) || !activeRow) return;
    const step = stepOf(e.key);
    if (step !== 0) {
      const next = Math.max(0, Math.min(rows.length - 1, at + step));
      const row = rows[next];
      if (row) activate(rowKey(row), next);
      virtual.scrollToIndex(next);
    } else if (e.key === "Enter") onOpen(activeRow);
    else if (onSide && (e.key === "ArrowLeft" || e.key === "ArrowRight")) onSide(activeRow, e.key === "ArrowLeft" ? -1 : 1);
    else return;
    e.preventDefault();
  };

  const items = virtual.getVirtualItems();
  const shown = items.some((i) => i.index === at);
  return (
    <div
      ref={scroll}
      className="grid"
      role={treeRow ? "treegrid" : "grid"}
      aria-label={label}
      aria-rowcount={rows.length + 1}
      // Both roles take the focus.
      // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex
      tabIndex={0}
      aria-activedescendant={activeRow && shown ? `${id}-${rowKey(activeRow)}` : undefined}
      onKeyDown={onKeyDown}
      style={
        {
          "--rows": rows.length,
          "--columns": tracks(columns),
          "--narrow": tracks(
            columns.filter((c) => c.narrow),
            true,
          ),
        } as CSSProperties
      }
    >
      <div role="row" className="grid-row grid-head" aria-rowindex={1}>
        {columns.map((c) => (
          <div key={c.key} role="columnheader" className={cellClass(c)}>
            {c.title}
          </div>
        ))}
      </div>
      <div role="rowgroup" className="grid-body" style={{ height: virtual.getTotalSize() }}>
        {items.map((v) => {
          const item = rows[v.index];
          if (item === undefined) return null;
          const key = rowKey(item);
          const tree = treeRow?.(item);
          return (
            <Row
              key={key}
              id={`${id}-${key}`}
              item={item}
              itemKey={key}
              index={v.index}
              start={v.start}
              columns={columns}
              active={v.index === at}
              selected={key === selected}
              level={tree?.level}
              expanded={tree?.expanded}
              activate={activate}
              onOpen={onOpen}
            />
          );
        })}
      </div>
    </div>
  );
}

interface RowProps<T> {
  id: string;
  item: T;
  itemKey: string;
  index: number;
  start: number;
  columns: Column<T>[];
  active: boolean;
  selected: boolean;
  level: number | undefined;
  expanded: boolean | undefined;
  activate: (key: string, index: number) => void;
  onOpen: (item: T) => void;
}

function PlainRow<T>({ id, item, itemKey, index, start, columns, active, selected, level, expanded, activate, onOpen }: RowProps<T>) {
  return (
    // Keys are handled by the grid, which has the focus.
    // eslint-disable-next-line jsx-a11y/click-events-have-key-events, jsx-a11y/interactive-supports-focus
    <div
      id={id}
      role="row"
      className={`grid-row${active ? " grid-active" : ""}${selected ? " grid-selected" : ""}`}
      style={{ top: start, height: rowHeight }}
      aria-rowindex={index + 2}
      aria-selected={selected}
      aria-level={level}
      aria-expanded={expanded}
      onClick={() => {
        activate(itemKey, index);
        onOpen(item);
      }}
    >
      {columns.map((c) => (
        <div key={c.key} role="gridcell" className={cellClass(c)}>
          {c.cell(item)}
        </div>
      ))}
    </div>
  );
}

const Row = memo(PlainRow) as typeof PlainRow;

function cellClass<T>(c: Column<T>): string {
  return `grid-cell${c.right ? " right" : ""}${c.narrow ? "" : " wide"}`;
}

function tracks<T>(columns: Column<T>[], narrow = false): string {
  return columns.map((c) => (narrow ? c.narrow : c.width)).join(" ");
}
