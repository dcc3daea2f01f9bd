// SPDX-License-Identifier: Apache-2.0
import { gbps, percent } from "../format";

interface Props {
  bandwidthGBps: number;
  bestGBps: number;
  quality: number; // -1: not known
  linkClass: string;
}

/** How fast the ring of a placement is beside the best of the same machine when it is empty. */
export function Quality({ bandwidthGBps, bestGBps, quality, linkClass }: Props) {
  if (quality < 0) return <span className="dim">–</span>;
  const label = `${gbps(bandwidthGBps)} of ${gbps(bestGBps)}${linkClass ? `, ${linkClass}` : ""}`;
  return (
    <span className="quality" title={label}>
      <span className={quality < 0.995 ? "bar bar-low" : "bar"} role="img" aria-label={label}>
        <span className="bar-part bar-used" style={{ width: percent(Math.min(1, quality)).replace(" ", "") }} />
      </span>
      <span>{percent(quality)}</span>
    </span>
  );
}
