// SPDX-License-Identifier: Apache-2.0
import type { Letter } from "../api";
import { count } from "../format";

// The signs are those of `nvtopo top`.
export const gpuStates: Record<Letter, { sign: string; word: string }> = {
  f: { sign: "·", word: "free" },
  u: { sign: "#", word: "used" },
  d: { sign: "~", word: "degraded" },
  m: { sign: "m", word: "partitioned" },
  x: { sign: "x", word: "unhealthy" },
};

function stateOf(letter: string) {
  return gpuStates[letter as Letter] ?? { sign: "?", word: "unknown" };
}

/** What a strip says in words: "3 free, 5 used". */
export function stripLabel(states: string): string {
  const words = new Map<string, number>();
  for (const letter of states) {
    const { word } = stateOf(letter);
    words.set(word, (words.get(word) ?? 0) + 1);
  }
  return [...words].map(([word, n]) => `${n} ${word}`).join(", ") || count(0, "GPU");
}

/** The sign of a state in its colours. It is drawn by the style sheet: not text, whose meaning is said beside it. */
export function GPUSign({ letter }: { letter: string }) {
  return <span className={`gpu gpu-${letter}`} data-sign={stateOf(letter).sign} aria-hidden="true" />;
}

/** A cell for each GPU, with a sign for its state. */
export function GPUStrip({ states }: { states: string }) {
  return (
    <span className="strip" role="img" aria-label={stripLabel(states)} title={stripLabel(states)}>
      {[...states].map((letter, i) => (
        <GPUSign key={i} letter={letter} />
      ))}
    </span>
  );
}

export function GPULegend() {
  return (
    <span className="legend" aria-hidden="true">
      {Object.entries(gpuStates).map(([letter, s]) => (
        <span key={letter}>
          <GPUSign letter={letter} /> {s.word}
        </span>
      ))}
    </span>
  );
}
