// SPDX-License-Identifier: Apache-2.0

/** A time as the CLI prints it: UTC, to the second. */
export function utc(t: string): string {
  const date = new Date(t);
  return Number.isNaN(date.getTime()) ? t : date.toISOString().replace(/\.\d+Z$/, "Z");
}

export function gbps(v: number): string {
  return `${Number(v.toFixed(1))} GB/s`;
}

export function gib(bytes: number | undefined): string {
  return bytes ? `${Math.round(bytes / 2 ** 30)} GiB` : "";
}

export function percent(share: number): string {
  return `${Math.round(100 * share)} %`;
}

/** "1 node", "2 nodes". */
export function count(n: number, word: string): string {
  return `${n} ${word}${n === 1 ? "" : "s"}`;
}
