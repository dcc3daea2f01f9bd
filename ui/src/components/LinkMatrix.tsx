// SPDX-License-Identifier: Apache-2.0
import type { GPU, Links } from "../api";
import { linkKind } from "../linkclass";

/** The links as `nvtopo topology` prints them, with GB/s below each class. */
export function LinkMatrix({ gpus, links }: { gpus: GPU[]; links: Links }) {
  return (
    <div className="scroll" tabIndex={0} role="region" aria-label="Link matrix, in GB/s">
      <table className="matrix">
        <thead>
          <tr>
            <td />
            {gpus.map((g) => (
              <th key={g.uuid} scope="col">
                {g.index}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {gpus.map((g, row) => (
            <tr key={g.uuid}>
              <th scope="row">GPU {g.index}</th>
              {gpus.map((other, column) => {
                const linkClass = links.classes[row]?.[column] ?? "";
                const bandwidth = links.bandwidthGBps[row]?.[column] ?? 0;
                return row === column ? (
                  <td key={other.uuid} className="dim">
                    X
                  </td>
                ) : (
                  <td key={other.uuid} className={`cell-${linkKind(linkClass)}`}>
                    {linkClass}
                    <small>{Number(bandwidth.toFixed(1))}</small>
                  </td>
                );
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
