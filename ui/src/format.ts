// SPDX-License-Identifier: Apache-2.0

/** How long ago: "12 s", "5 min", "3 h", "2 d". */
export function ago(then: string, now: number): string {
  const seconds = Math.max(0, Math.round((now - Date.parse(then)) / 1000));
  if (Number.isNaN(seconds)) return "";
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 48 * 3600) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

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
