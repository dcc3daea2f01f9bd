// SPDX-License-Identifier: Apache-2.0

export type Side = "left" | "right" | "up" | "down";

const sides: Record<string, Side> = {
  ArrowLeft: "left",
  h: "left",
  ArrowRight: "right",
  l: "right",
  ArrowUp: "up",
  k: "up",
  ArrowDown: "down",
  j: "down",
};

export function sideOf(key: string): Side | undefined {
  return sides[key];
}

interface Rect {
  x: number;
  y: number;
  width: number;
  height: number;
}

/**
 * The rectangle that one comes to from another by going to a side: of those whose top left corner
 * lies there, the one with the least way, where ways across count three times.
 */
export function nearest<T extends Rect>(all: T[], from: T, side: Side): T | undefined {
  const across = side === "left" || side === "right";
  const sign = side === "left" || side === "up" ? -1 : 1;
  let best: T | undefined;
  let least = Infinity;
  for (const r of all) {
    const along = sign * (across ? r.x - from.x : r.y - from.y);
    const aside = Math.abs(across ? r.y - from.y : r.x - from.x);
    if (along <= 0) continue;
    const way = along + 3 * aside;
    if (way < least) {
      least = way;
      best = r;
    }
  }
  return best;
}
