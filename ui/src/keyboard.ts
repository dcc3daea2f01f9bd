// SPDX-License-Identifier: Apache-2.0
import { useEffect } from "react";

/** What a key means on any page. */
export type Command = { go: string } | "search" | "help" | null;

const pages: Record<string, string> = { f: "/", w: "/workloads", g: "/gangs", p: "/pools" };

/** The command of a key, `before` being the key pressed before it. */
export function commandOf(before: string, key: string): Command {
  const page = pages[key];
  if (before === "g" && page) return { go: page };
  if (key === "/") return "search";
  if (key === "?") return "help";
  return null;
}

/** The step in a list that a key means. */
export function stepOf(key: string): number {
  switch (key) {
    case "j":
    case "ArrowDown":
      return 1;
    case "k":
    case "ArrowUp":
      return -1;
    case "PageDown":
      return 10;
    case "PageUp":
      return -10;
    case "Home":
      return -Infinity;
    case "End":
      return Infinity;
    default:
      return 0;
  }
}

/** Keys mean themselves where text is entered, and with a modifier the browser's commands. */
export function isTyping(e: KeyboardEvent): boolean {
  const target = e.target as HTMLElement;
  return e.ctrlKey || e.metaKey || e.altKey || target.isContentEditable || /^(input|textarea|select)$/i.test(target.tagName);
}

// After g the letter of a page must follow within this time, in ms.
const sequence = 1_500;

export function useCommands(run: (c: Exclude<Command, null>) => void): void {
  useEffect(() => {
    let before = { key: "", at: 0 };
    const onKey = (e: KeyboardEvent) => {
      if (isTyping(e) || e.key === "Shift") return;
      const command = commandOf(e.timeStamp - before.at < sequence ? before.key : "", e.key);
      before = { key: command ? "" : e.key, at: e.timeStamp };
      if (!command) return;
      e.preventDefault();
      run(command);
    };
    window.addEventListener("keydown", onKey);
    return () => window.removeEventListener("keydown", onKey);
  }, [run]);
}

/** Moves the focus among the links and buttons in an element by j, k and the arrows. */
export function moveAmongLinks(e: React.KeyboardEvent<HTMLElement>): void {
  const step = stepOf(e.key);
  if (isTyping(e.nativeEvent) || Math.abs(step) !== 1) return;
  const links = [...e.currentTarget.querySelectorAll<HTMLElement>("a[href]")];
  if (links.length === 0) return;
  e.preventDefault();
  const at = links.indexOf(document.activeElement as HTMLElement);
  const next = at < 0 && step < 0 ? links.length - 1 : Math.max(0, Math.min(links.length - 1, at + step));
  links[next]?.focus();
}
