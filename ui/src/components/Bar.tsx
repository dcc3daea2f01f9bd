// SPDX-License-Identifier: Apache-2.0

export interface Part {
  name: string;
  value: number;
  kind: "used" | "borrowed" | "reserved" | "bad" | "free";
}

/** A bar of parts of a whole, with the numbers as its label; marks are drawn over it. */
export function Bar({ parts, total, marks = [] }: { parts: Part[]; total: number; marks?: { name: string; at: number }[] }) {
  const label = [...parts.map((p) => `${p.value} ${p.name}`), ...marks.map((m) => `${m.name} ${m.at}`)].join(", ");
  const width = (v: number) => `${total > 0 ? Math.min(100, (100 * v) / total) : 0}%`;
  return (
    <span className="bar" role="img" aria-label={`${label}, of ${total}`} title={`${label}, of ${total}`}>
      {parts.map((p) => (
        <span key={p.name} className={`bar-part bar-${p.kind}`} style={{ width: width(p.value) }} />
      ))}
      {marks.map((m) => (
        <span key={m.name} className={`bar-mark bar-mark-${m.name}`} style={{ left: width(m.at) }} />
      ))}
    </span>
  );
}

/** What the parts of bars mean, and the mark over them. */
export function BarLegend({ kinds, mark }: { kinds: [Part["kind"], string][]; mark: string }) {
  return (
    <div className="legend">
      {kinds.map(([kind, word]) => (
        <span key={kind}>
          <span className="bar bar-sample">
            <span className={`bar-part bar-all bar-${kind}`} />
          </span>{" "}
          {word}
        </span>
      ))}
      <span>
        <span className="bar bar-sample">
          <span className="bar-mark bar-middle" />
        </span>{" "}
        {mark}
      </span>
    </div>
  );
}
