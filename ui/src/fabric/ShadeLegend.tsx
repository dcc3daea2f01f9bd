// SPDX-License-Identifier: Apache-2.0
import { GPULegend } from "../components/GPUStrip";

// The shade, its sign, and what it means. Where slots count, the sign on a tile is their number.
const shades: [string, string, string][] = [
  ["0", "", "none free"],
  ["1", "", "up to ⅓"],
  ["2", "", "up to ⅔"],
  ["3", "", "more"],
  ["4", "", "all free"],
  ["none", "–", "too small"],
  ["closed", "×", "closed"],
  ["noGraph", "?", "no graph that counts"],
];

/** What colours, patterns and signs of the map mean. */
export function ShadeLegend({ size }: { size: number }) {
  return (
    <div className="legends">
      <span className="legend" aria-label="Legend">
        <span>Free slots of {size}:</span>
        {shades.map(([shade, sign, word]) => (
          <span key={shade}>
            <span className={`swatch shade-${shade}`}>{sign || "\u00a0"}</span> {word}
          </span>
        ))}
        <span>! the node has a note</span>
      </span>
      <GPULegend />
    </div>
  );
}
